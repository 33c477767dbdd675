"""Bugs to plant in the steps of snapshots, repair and the life cycle of replicas.

The simulator drives these steps, so its seeds show them; the cheapest proof is a test of the steps.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Seeds, Tests

#: Faults that leave a node behind the start of the metadata group's log.
AWAY = ("partition-one", "kill", "power-loss", "isolate-leader", "crash-midway", "partition-halves")

BUGS = (
    Bug(
        "snapshot-is-taken-while-it-is-encoded",
        "node.replicas.snapshot_source",
        "SnapshotSource._take",
        "data = await self._on_thread(encode, captured)",
        "await self._on_thread(len, captured.values)\n"
        "    captured.values[3] = self._capture(group).values[3]\n"
        "    data = encode(captured)",
        "a snapshot of one index has the metadata of a later one, applied while a thread worked",
        Tests(("tests/node/replicas/test_snapshot_source.py::"
               "test_what_is_applied_while_a_thread_encodes_is_not_in_the_snapshot",)),
    ),
    Bug(
        "outdated-image",
        "node.replicas.snapshot_source",
        "SnapshotSource._needs_another",
        "or self._is_outdated(request.group, served)",
        "",
        "a snapshot is served for ever behind which the log does not continue",
        Tests(("tests/node/replicas/test_snapshot_source.py::"
               "test_a_snapshot_behind_which_the_log_does_not_continue_is_replaced",)),
    ),
    Bug(
        "snapshot-is-visible-before-it-is-durable",
        "node.replicas.snapshot_installer",
        "SnapshotInstaller.install",
        "self._checkpoints.write_now(snapshot.encoded)\n"
        "        self._core.install_snapshot(METADATA_GROUP, *replica)",
        "self._core.install_snapshot(METADATA_GROUP, *replica)\n"
        "        self._checkpoints.write_now(snapshot.encoded)",
        "consensus acknowledges a snapshot that a crash takes back",
        Tests(("tests/node/replicas/test_snapshot_installer.py::"
               "test_a_snapshot_is_durable_before_consensus_and_other_parts_learn_of_it",)),
        Seeds((10,), faults=AWAY),
    ),
    Bug(
        "silent-peer-is-never-asked-again",
        "node.replicas.repair_steps",
        "RepairSteps.repair_all",
        "self._silent.clear()",
        "pass",
        "a peer that was silent once is left out for as long as anything is under repair: with two "
        "of them a replica stays damaged",
        Tests(("tests/node/replicas/test_repair_steps.py::"
               "test_a_peer_without_a_valid_reply_is_left_out_until_the_next_pass",)),
        Seeds((5,), faults=("bit-rot", "bit-rot", "misdirected", "partition-one", "kill")),
    ),
    Bug(
        "replica-is-created-before-its-tombstone",
        "node.replicas.lifecycle",
        "Replicas.on_create_requested",
        "elif group in self._store.groups:",
        "elif False:",
        "a replica that is created right after its removal gets the log of the removed one",
        Tests(("tests/node/replicas/test_lifecycle.py::"
               "test_no_replica_is_created_before_the_tombstone_of_the_earlier_one_is_durable",)),
    ),
)
