"""A backup as it lies on a disk: a folder, or one tar file."""
