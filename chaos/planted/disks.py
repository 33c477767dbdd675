"""Bugs to plant in the handling of a disk that fails, fills up, hangs or misdirects writes.

They are in storage, in leases, and in the steps of the node that the simulator drives; each entry
names the effect and where it was seen.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Seeds, Tests

BUGS = (
    Bug("failed-sync-counts", "node.loop.write_gather", "WriteGather.collect",
        "if error:",
        "if False:",
        "a driver goes on after a failed write or sync, as a retry would let it (rostam #94)",
        Seeds(faults=("eio-sync", "eio-sync", "eio-write", "power-loss", "isolate-leader"))),
    Bug("hung-disk-vouches", "multiraft.liveness.store_liveness", "StoreLiveness.on_heartbeat",
        "if not self._healthy:",
        "if False:",
        "a node whose disk hangs keeps its leases: its groups stand still (hashicorp/raft #503)",
        Seeds((3,), faults=("disk-hung",))),
    Bug("no-room-reserved", "multiraft.storage.journal.journal", "Segment.create",
        "if preallocate:",
        "if False:",
        "a segment finds no room in the middle of a gathered write",
        Seeds((5,), faults=("disk-full", "disk-full", "kill"))),
    Bug("full-disk-is-the-end", "node.loop.segment_files", "SegmentFiles._create",
        "if self._space is None or not is_full(error):",
        "if True:",
        "no space_guard for a segment stops the node instead of its records",
        Seeds((9,), faults=("disk-full", "disk-full", "kill"))),
    Bug("full-again-without-blocks", "multiraft.storage.disk_space",
        "DiskSpaceGuard._preallocate_files",
        "missing = self._files.unallocated_bytes()",
        "missing = 0",
        "a segment that was made on a full disk finds no room when the disk is full again",
        Tests(("tests/storage/test_disk_space.py::"
               "test_a_file_without_its_blocks_is_given_them_before_records_are_taken",))),
    Bug("scrub-trusts-any-entry", "multiraft.storage.repair.scrub", "Scrubber._overwritten",
        "if any(repair.is_at(*entry) for entry in job.entries):",
        "if True:",
        "what a misdirected write left is taken for what belongs there",
        Tests(("tests/storage/repair/test_scrub.py::"
               "test_what_a_misdirected_write_left_within_one_write_hides_nothing",))),
)
