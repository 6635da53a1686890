"""What makes a broker a good service: a drain before the stop, systemd's protocol, logs that programs read."""
