"""Backups of a data folder, of a broker that runs or not, and what is made of them: docs/backup.md."""
