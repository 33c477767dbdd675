"""Removal: how the space of records that left their partitions returns to the disk.

Read ``removal_steps`` first: it has the order. ``record_trim`` removes records from memory, and
``segment_remover`` the segments in which nothing is needed; ``segment_cleaner`` copies the records
of segments with few of them. ``removal_task`` and ``cleaner_task`` run these in a node. Which
records leave is decided in ``node.retention``.
"""
