"""Storage of one node on blocking files, behind one small filesystem interface.

``Store`` (``store.py``) is the entry point; ``docs/storage-format.md`` describes the bytes.

Modules, by concern:

- Logs: ``log_table.py`` has the logs of all groups, ``stored_log.py`` is one of them, ``index.py``
  its packed index, ``cache.py`` the entries in memory.
- Journal: ``journal/journal.py`` appends, ``journal/segment_scan.py`` reads a segment across
  damage, ``journal/segment_index.py`` has the entries that one segment adds to each group,
  ``index_file.py`` its file beside a sealed segment, ``segment_seal.py`` makes that file,
  ``journal/segment_reader.py`` reads single entries with it.
- Blocking work: ``io_jobs.py``.
- Checkpoints: ``checkpointer.py`` decides when and what, ``checkpoint.py`` encodes and writes,
  ``chunked_cbor.py`` is CBOR in chunks, ``atomic_file.py`` replaces a file atomically.
- Recovery: ``recovery/torn_tail.py`` tells a torn tail from corruption, ``recovery/rebuild.py``
  joins segments to logs, ``recovery/group_rebuild.py`` the parts of one group,
  ``recovery/lost_truncations.py`` finds entries whose truncation record is damaged,
  ``recovery/report.py`` is the report, ``strays.py`` names files that are not this node's.
- Damage: ``damage/damage_map.py`` has the states of a replica's entries and of its quarantine,
  ``damage/journal_damage.py`` the damaged ranges of the journal, ``damage/place.py`` their
  addresses, ``damage/ranges.py`` computes with ranges.
- Repair: ``repair/repair.py`` changes this node's logs, ``repair/coordinator.py`` asks peers,
  ``repair/scrub.py`` reads the disk in search of damage.
- Node: ``identity.py`` (cluster, node, boot epoch), ``refusal_record.py`` (a start that peers
  rejected), ``disk_space.py`` (disk space), ``snapshot_download.py`` (a snapshot that is being
  received), ``inspect.py`` (offline inspection of a directory).
- Base: ``filesystem.py``, ``config.py``, ``settings.py``, ``errors.py``.
"""
