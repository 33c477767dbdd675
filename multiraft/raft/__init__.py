"""Sans-I/O Raft core that runs many groups on one node."""
