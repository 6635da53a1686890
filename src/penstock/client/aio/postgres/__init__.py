"""Sessions over postgresql://: the I/O around the participant in `penstock.pg`."""
