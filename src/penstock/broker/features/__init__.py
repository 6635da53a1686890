"""What queues can do beyond the plain: dead letters, deduplication, holding back."""
