"""Simulated clients: workload, topics and the history that they record."""
