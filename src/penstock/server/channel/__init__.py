"""A channel: publishing, deliveries, what is unacknowledged, confirms."""
