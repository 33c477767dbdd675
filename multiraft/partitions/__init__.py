"""State of partitions that the log entries of a group define: offsets, producers, opens and
seals."""
