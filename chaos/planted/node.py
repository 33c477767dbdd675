"""Bugs to plant in the node: driver, event loop, threads and connections.

The simulator runs the pure steps of the driver and the parts that carry out moves; seeds catch the
bugs in these. Everything else needs a test of the node or real nodes.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, NemesisRun, Nodes, Seeds, Tests

BUGS = (
    Bug("stuck-disk-keeps-leases", "node.peers.liveness_thread", "LivenessThread._publish",
        "and now_ms - busy_since_ms > self._disk_stall_ms_max:",
        "and False:",
        "a node whose disk hangs goes on holding its leases and leading (hashicorp/raft #503)",
        Tests(("tests/node/peers/test_liveness_thread.py::"
               "test_a_disk_that_hangs_ends_the_leases_and_they_return_with_it",))),
    Bug("frame-loses-its-last-item", "node.peers.codec", "decode",
        "for item in items:",
        "for item in items[:-1] or items:",
        "a frame for many groups is taken apart with one item too few",
        Tests(("tests/node/peers/test_codec.py::"
               "test_messages_come_back_in_order_and_as_they_were",))),
    Bug("deleted-partition-is-opened", "node.clients.partition_open", "require_known_deletions",
        "if metadata_index < opens_from:",
        "if False:",
        "a leader with old metadata opens a partition that its group has deleted",
        Tests(("tests/node/clients/test_partition_open.py::"
               "test_a_batch_opens_no_partition_by_older_metadata",))),
    Bug("log-start-beyond-the-end", "node.admin.record_deletion", "RecordDeletion._deletion",
        "if before > end:",
        "if before > states.next_offset(partition):",
        "a deletion reaches records that are not committed, and no reader could have seen",
        Tests(("tests/node/admin/test_record_deletion.py::"
               "test_records_that_are_not_committed_are_beyond_the_end",))),
    Bug("deletion-acknowledged-early", "node.admin.record_deletion", "RecordDeletion._outcome",
        "if log_start >= row.before_offset:",
        "if True:",
        "a deletion is acknowledged that its leader has only proposed",
        Tests(("tests/node/admin/test_record_deletion.py::"
               "test_a_deletion_that_a_new_leader_dropped_had_no_effect",))),
    Bug("refusal-is-not-kept", "node.peers.admission", "Admission._end",
        "self._record_refusal(text, remembered or NO_BOOT_ID)",
        "pass",
        "a refused directory is started again as if nothing had been said",
        Tests(("tests/node/peers/test_admission.py::"
               "test_what_will_never_change_ends_the_node_with_the_way_out",))),
    Bug("lives-are-kept-in-memory-only", "node.peers.registry", "write",
        '"lives": _rows(facts.boot_ids)',
        '"lives": []',
        "a node that starts again has forgotten whom it let in: a copy is as good to it",
        Tests(("tests/node/peers/test_registry.py::"
               "test_the_boot_id_that_was_let_in_is_remembered_over_a_restart",))),
    Bug("one-group-ends-the-node", "node.peers.listener", "_Incoming._take_frames",
        "except (RemoteProtocolError, ImpossibleMessage) as error:",
        "except RemoteProtocolError as error:",
        "an error in one group cancels the nursery of all of them",
        Nodes(("tests/e2e/test_hostile_peer.py",))),
    Bug("timers-follow-the-wall-clock", "node.clock", "monotonic_ms",
        "time.monotonic_ns()",
        "time.time_ns()",
        "timers are measured in a clock that operators and ntpd set",
        Nodes(("tests/chaos/backends/test_launcher.py::"
               "test_a_wall_clock_that_jumps_is_nothing_to_a_node",))),
    Bug("file-names-not-synced", "multiraft.storage.filesystem", "RealFilesystem.sync_directory",
        "os.fsync(descriptor)",
        "pass",
        "a file's new name is lost with the power, though its contents were synced (ALICE, 2014)",
        Nodes(("tests/chaos/backends/test_file_system.py::"
               "test_what_was_put_in_place_is_there_after_a_power_loss",))),
    Bug("failed-sync-is-passed-over", "node.loop.disk_worker", "DiskWorker.collect",
        "self._queue.completions()",
        "[(job[0], 0, *job[2:]) for job in self._queue.completions()]",
        "a node goes on after a failed write or sync, and acknowledges it (PostgreSQL, 2018)",
        Nodes(("tests/e2e/test_failed_sync.py::test_one_failed_sync_ends_the_node",))),
    Bug("no-room-ends-the-node", "node.loop.segment_files", "SegmentFiles._unless_full",
        "if self._space is None or not is_full(error):",
        "if True:",
        "no room for what could wait stops the node instead of its records",
        Seeds((2,), faults=("disk-full", "disk-full", "kill"))),
    Bug("writes-not-synced", "node.loop.write_gather", "WriteGather.start_next",
        "sync or file is not last",
        "file is not last",
        "writes are acknowledged out of the page cache (Jepsen: NATS JetStream 2.12.1)",
        # Its first and second turns include a power loss of all nodes. Seeds catch it too; it stays
        # the bug that shows that containers can fail.
        NemesisRun(15, ("power-loss",), 1148), Seeds((1,), faults=("power-loss",))),
    Bug("written-before-durable", "node.loop.ready_driver", "ReadyDriver._process_ready",
        "self._disk.submit(staged)",
        "self._disk.submit(staged)\n"
        "        self._durable_sequence = staged.sequence\n"
        "        self._core.written(staged.sequence)",
        "the driver reports a write when it is submitted, and votes leave before the disk has them",
        Seeds((1,), faults=("power-loss", "kill"))),
    Bug("watermark-of-what-gathers", "node.loop.write_gather", "WriteGather.submit",
        "self._gathering.append(staged)",
        "self._gathering.append(staged)\n    self._store.submitted(staged)",
        "entries say that a write is durable which has only gathered: recovery cuts the log there",
        Seeds((47,), faults=("power-loss", "kill", "crash-in-write"))),
    Bug("segment-left-unsynced", "node.loop.write_gather", "WriteGather._relax",
        "if self._unsynced is not None and self._unsynced is not jobs[0][0]:",
        "if False:",
        "relaxed records of a full segment are never synced, and the next segment says they were",
        Seeds((17,), faults=("power-loss", "transfer", "isolate-leader", "kill"))),
    Bug("small-batch-overtakes-a-checked-one", "node.clients.key_checks", "KeyChecks.waits",
        "if check is None and queue is None:",
        "if check is None:",
        "a batch is appended while a thread still checks one that its producer has sent before it",
        Tests(("tests/node/clients/test_key_checks.py::"
               "test_nothing_overtakes_a_batch_that_is_checked",))),
    Bug("fault-found-by-a-thread-is-forgotten", "node.clients.key_checks", "KeyChecks._work",
        "batch.resume(error)",
        "batch.resume(None)",
        "records without a key get into a topic with compaction when they are compressed",
        Tests(("tests/node/clients/test_key_checks.py::"
               "test_records_of_each_compression_are_looked_at",))),
    Bug("decompressed-without-the-limit-of-the-topic", "node.clients.record_keys",
        "KeyCheck._block",
        "layout.BATCH_HEADER_BYTES:], limit)",
        "layout.BATCH_HEADER_BYTES:], 1 << 40)",
        "a node decompresses whatever a producer sends, up to its memory",
        Tests(("tests/node/clients/test_key_checks.py::"
               "test_records_over_the_limit_are_refused_with_the_limit",))),
)
