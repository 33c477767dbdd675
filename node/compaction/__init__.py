"""Compaction by key: when the leader of a partition orders it, and up to where.

Read ``compaction_policy`` first: it decides about one partition.  ``compaction_pass`` chooses the
partitions and proposes what was decided, ``tombstone_marks`` remembers which COMPACT entries are
old enough for tombstones to go, and ``compaction_task`` runs all of this in a node.  How records
are compacted, on every replica alike, is the subject of ``multiraft.storage``.
"""
