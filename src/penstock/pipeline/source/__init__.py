"""The Spark source: options, filters, batch and stream readers, for each view."""
