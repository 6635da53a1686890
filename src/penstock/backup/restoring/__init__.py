"""From a backup to a data folder."""
