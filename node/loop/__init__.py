"""The round loop of a node: socket events in, one write of the journal, messages and replies out.

Read ``round_loop`` first. Its docstring explains group commit, the order of effects, and why
messages to followers may leave before the local disk has the entries. ``poller`` feeds the loop,
``disk_worker`` writes and syncs, ``applier`` carries committed entries into the state of partitions
and metadata, ``turns`` bounds the work per pass of the event loop.
"""
