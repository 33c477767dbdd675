"""Connections of one simulated node with its peers."""
