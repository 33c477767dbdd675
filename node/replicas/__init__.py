"""Replicas on this node: creation, removal, snapshots, repair, partition switches, leadership.

Read ``lifecycle`` first: it decides which groups have a replica here. ``snapshots`` and ``repair``
bring a replica up that lacks entries; ``partition_switch`` moves partitions between groups,
``log_start_propagation`` tells earlier groups of a partition what was deleted;
``drain_leadership`` and ``shed_leadership`` transfer leadership away, at a stop and on a full disk;
``orderly_stop`` is the order of a stop.
"""
