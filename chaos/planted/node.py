"""Bugs to plant in the node: event loop, threads and connections.

The simulator has a driver of its own: of the node it runs only the parts that carry out moves.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, NemesisRun, Nodes, Tests

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
    Bug("failed-sync-is-passed-over", "node.loop.write_gather", "WriteGather.collect",
        "if error:",
        "if False:",
        "a node goes on after a failed write or sync, and acknowledges it (PostgreSQL, 2018)",
        Nodes(("tests/e2e/test_failed_sync.py::test_one_failed_sync_ends_the_node",))),
    Bug("no-room-ends-the-node", "node.loop.segment_files", "SegmentFiles._unless_full",
        "if self._space is None or not is_full(error):",
        "if True:",
        "no room for what could wait stops the node instead of its records",
        Nodes(("tests/e2e/test_full_disk.py::"
               "test_filling_up_under_load_loses_nothing_that_was_acknowledged",))),
    Bug("writes-not-synced", "node.loop.write_gather", "WriteGather.start_next",
        "sync or file is not last",
        "file is not last",
        "writes are acknowledged out of the page cache (Jepsen: NATS JetStream 2.12.1)",
        # Its first and second turns include a power loss of all nodes.
        NemesisRun(15, ("power-loss",), 1148)),
)
