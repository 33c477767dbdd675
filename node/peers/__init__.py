"""Connections between nodes: handshake, append and bulk connections, liveness, admission."""
