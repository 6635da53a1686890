"""What runs jobs: child processes behind a fork server, or the worker itself."""
