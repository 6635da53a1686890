"""Messages of the past back into queues: which, how they look then, in what slices, and how far it has come."""
