"""Replicas on this node: creation, removal, snapshots, repair, partition switches, leadership."""
