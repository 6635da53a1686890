"""A simulated disk that loses what was not synced, fails on demand and remembers its calls."""
