"""The journal: segment files that all groups of a node share, and their indexes."""
