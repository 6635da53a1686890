"""Who syncs files, and how the store is opened."""
