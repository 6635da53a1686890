"""From events to lives, and from lives to minutes: what Spark computes between bronze, silver and gold."""
