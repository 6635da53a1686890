"""Properties and headers of messages as texts."""
