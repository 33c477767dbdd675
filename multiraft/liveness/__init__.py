"""Liveness shared by all groups of a node pair: leases, support, and the tables of leaders."""
