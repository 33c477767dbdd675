"""Bugs to plant in the storage of compaction by key: what survives, and what is read afterwards."""

from __future__ import annotations

from chaos.planted.bug import Bug, Tests

_MARKING = Tests(("tests/storage/compaction/test_marking.py",))
_COMPACTOR = Tests(("tests/storage/compaction/test_compactor.py",))
_MODULES = "multiraft.storage.compaction"

BUGS = (
    Bug("tombstones-go-at-once", f"{_MODULES}.marking", "Marking._mark_batch",
        "self._order.tombstones_below, marks, first)",
        "self._order.up_to, marks, first)",
        "a tombstone goes before delete.retention.ms",
        _MARKING),
    Bug("tombstones-go-before-older-records", f"{_MODULES}.marking", "Marking._round",
        "table.add(found.header, found.block, self._marks, first, True)",
        "pass",
        "a deleted key returns with an older record, whose batch is kept whole",
        _MARKING),
    Bug("transactions-supersede", f"{_MODULES}.marking", "Marking._examined",
        "if header.attributes & layout.ATTRIBUTE_TRANSACTIONAL:",
        "if False:",
        "a record leaves because of one that a transaction may have in vain",
        _MARKING),
    Bug("unreadable-batches-hold-no-key", f"{_MODULES}.marking", "Marking._round",
        "if kind == _UNREADABLE:",
        "if False:",
        "a tombstone goes while a batch that cannot be decoded may have its key",
        _MARKING),
    Bug("newer-batches-are-not-examined", f"{_MODULES}.marking", "Marking._mark_batch",
        "if found.kind in (_PLAIN, _COMPRESSED):",
        "if is_kept and found.kind in (_PLAIN, _COMPRESSED):",
        "with little memory, older records stay whose newer ones were left to another marking",
        _MARKING),
    Bug("carried-out-before-checkpoints-have-it", f"{_MODULES}.compactor",
        "Compactor.carried_out",
        "if self._checkpoints - since < self._checkpoints_kept:",
        "if False:",
        "tombstones go while a start may bring an older record back",
        _COMPACTOR),
    Bug("dropped-batches-return-with-a-start", "multiraft.storage.store", "Store._recover",
        "drop_from_sources(table)\n",
        "pass\n",
        "a start reads the sources of a compaction once more",
        _COMPACTOR),
    Bug("dropped-batches-are-copied-again", "multiraft.storage.cold.cleaner",
        "Cleaner.take_bounds",
        "log.records.needed_from(partition, job.start,",
        "max(0, 0,",
        "the cleaner copies what a compaction has dropped",
        _COMPACTOR),
    Bug("readers-stop-at-holes", "multiraft.storage.partition_reads", "PartitionReads._holes_below",
        "return state.compaction.up_to",
        "return 0",
        "a reader never gets past the offsets of a batch that compaction dropped",
        _COMPACTOR),
)
