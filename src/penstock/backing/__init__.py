"""What holds a queue's messages: one contract, several implementations."""
