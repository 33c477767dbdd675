"""Compaction by key: which records of a partition survive, and the batches that have them.

Read ``marking`` first: it decides, for one partition, by the contents of its batches alone.
``partition_batches`` reads these from the files of the store, in both directions, and
``surviving_batches`` has the result: batches that are dropped, and those that lose records.  The
cleaner (``storage/cold``) writes what survives to cold segments, as it does with all copies.
"""
