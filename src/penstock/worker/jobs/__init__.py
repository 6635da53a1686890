"""What a job is: the decorator, its message, and which functions a worker may run."""
