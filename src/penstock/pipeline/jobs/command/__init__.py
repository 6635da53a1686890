"""What the commands of the jobs share: options, answers, starting Spark, stopping."""
