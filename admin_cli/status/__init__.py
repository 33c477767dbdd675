"""State of a cluster: facts of nodes, groups, topics and replicas, and how they are shown."""
