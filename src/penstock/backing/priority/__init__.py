"""A queue with priorities: one backing for each level."""
