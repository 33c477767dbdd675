"""Client port of one simulated node."""
