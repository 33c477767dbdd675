"""Reads of the earlier epochs of switched partitions, from this node or another that has them."""
