"""Machine and process of one simulated node: disk, virtual time, crashes, waiting."""
