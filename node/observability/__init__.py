"""Metrics, health, logs and the loads that a node publishes."""
