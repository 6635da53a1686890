"""The variable queue: in memory as far as that goes, on disk as far as it must."""
