"""Repair of damaged entries from other replicas, and the scrub that finds damage."""
