"""The round loop of a node: socket events in, one write of the journal, messages and replies out.

Read ``ready_driver`` first. Its docstring explains group commit, the order of effects, and why
messages to followers may leave before the local disk has the entries. ``round_loop`` runs it,
``poller`` feeds it, ``applier`` carries committed entries into the state of partitions and
metadata, ``turns`` bounds the work per pass of the event loop. ``write_gather`` decides what is
written and synced, and ``disk_worker`` does it; ``segment_files`` and ``checkpoint_writer`` write
the other files.
"""
