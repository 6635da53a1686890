"""What a node keeps on disk, as a whole: its queues, checkpoints, names, options."""
