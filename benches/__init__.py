"""Speed, latency and memory of penstock beside rabbitmq-server. `python -m benches --help`."""
