"""Retention: which records leave a partition by age, bytes or number, and when that is decided.

Read ``retention_policy`` first: it decides about one partition. ``retention_pass`` chooses the
partitions and proposes what was decided, ``retention_schedule`` has those that are due at a time,
and ``clock_entries`` proposes the clocks that ages are measured by. ``retention_task`` runs all of
this in a node.
"""
