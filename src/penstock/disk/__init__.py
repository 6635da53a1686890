"""Files and checksums: the way to the machine's disk."""
