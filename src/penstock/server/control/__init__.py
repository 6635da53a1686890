"""The control socket in the data folder: operations for the machine's owner, who needs no password."""
