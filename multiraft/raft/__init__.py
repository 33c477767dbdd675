"""Consensus without input and output: one Raft core that runs many groups."""
