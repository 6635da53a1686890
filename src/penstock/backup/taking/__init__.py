"""Making a backup."""
