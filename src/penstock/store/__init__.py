"""Where messages live on disk when they do not fit into RAM, and how a node comes back."""
