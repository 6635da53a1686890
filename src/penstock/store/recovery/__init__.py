"""From a folder to a node: the newest checkpoint, and the journal behind it."""
