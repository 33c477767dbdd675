"""Replicas of one simulated node: life cycle, repair, snapshots, leadership."""
