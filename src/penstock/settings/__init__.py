"""Where a broker's settings come from: penstock.toml, rabbitmq.conf, the environment, flags; and how they are shown."""
