"""What was declared: arguments and their rules, the log, the restoring."""
