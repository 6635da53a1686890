"""How much memory is in use, and the alarms."""
