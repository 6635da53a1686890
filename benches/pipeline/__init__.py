"""What the pipeline costs: from the journal to Spark, to the lake, to lives; and what history costs the broker."""
