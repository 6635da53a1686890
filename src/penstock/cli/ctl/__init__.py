"""`penstockctl`: rabbitmqctl's verbs, asked of a running broker through its control socket."""
