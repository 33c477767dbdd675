"""Index files in blocks: a look-up reads one block of one file, and memory has a row per block.

Contract.  Pure: bytes come in and go out, reads are the caller's.  ``file_codec`` encodes the
``SegmentIndex`` of a sealed segment and decodes it, whole or only its summary; ``run_records`` has
the records of groups, which earlier versions share.  The summary has the rows that stay in memory
(``rows``); ``lookup`` answers from rows and blocks, ``block_cache`` keeps blocks that were read.

Theory.  An index of each entry costs memory for as long as the entry is on disk.  A sparse index
has one row for each part of a block that belongs to one key: its size depends on segments and
partitions, not on batches.
"""
