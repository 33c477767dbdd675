"""Settings of topics, and their defaults in the cluster: names, values, and what each does."""
