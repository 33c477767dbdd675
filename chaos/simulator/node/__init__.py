"""A simulated node and its parts."""
