"""The broker without its sockets: vhosts, registries, users, alarms."""
