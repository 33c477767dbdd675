"""Group 0 of one simulated node, and the membership of its groups."""
