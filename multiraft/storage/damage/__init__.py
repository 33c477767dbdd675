"""Damage of a node's storage: places, ranges, damage maps of replicas, damage of the journal."""
