"""Looking at a folder without starting it: dump and fsck."""
