"""Counters recomputed from the log and from the tables, to be compared with what is reported."""
