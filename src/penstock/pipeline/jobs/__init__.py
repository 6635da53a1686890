"""The jobs: each a function, a command of `penstock pipeline`, and an entry point for spark-submit."""
