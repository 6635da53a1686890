"""The jobs, one in a file: a command of `penstock pipeline`, which spark-submit runs, too. The work is elsewhere."""
