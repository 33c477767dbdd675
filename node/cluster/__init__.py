"""Requests between nodes about the cluster: registration, metadata, reported configurations."""
