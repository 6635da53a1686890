"""How long one client's act holds up everybody else."""
