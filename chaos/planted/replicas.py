"""Bugs to plant in the steps of snapshots, repair and the life cycle of replicas.

The simulator drives these steps, so its seeds show them; the cheapest proof is a test of the steps.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Scripts, Seeds, Tests

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
        "group-snapshot-is-visible-before-it-is-durable",
        "node.replicas.group_snapshot_installer",
        "GroupSnapshotInstaller.install",
        "await self._checkpoints.write_installed()\n"
        "        for each in begun:\n"
        "            self._end(each)",
        "for each in begun:\n"
        "            self._end(each)\n"
        "        await self._checkpoints.write_installed()",
        "consensus acknowledges snapshots that a crash takes back",
        Tests(("tests/node/replicas/test_group_snapshot.py::test_several_snapshots_share_a_"
               "checkpoint_that_is_durable_before_consensus_learns_of_any",)),
    ),
    Bug(
        "installing-replica-takes-entries",
        "multiraft.raft.multi_raft",
        "MultiRaft.step",
        "if group.is_installing:",
        "if False:",
        "entries reach a replica whose log storage has replaced already",
        Scripts(("snapshots/installing.txt",)),
    ),
    Bug(
        "installing-replica-campaigns",
        "multiraft.raft.group",
        "Group.may_campaign",
        "and not self.is_installing",
        "",
        "a replica leads with a log that storage has replaced already",
        Tests(("tests/raft/test_records_left.py::"
               "test_a_replica_that_installs_a_snapshot_does_not_campaign",)),
    ),
    Bug(
        "incomplete-learner-is-promoted",
        "multiraft.raft.conf_change",
        "_check_new_voter",
        "if member.records_left:",
        "if False:",
        "a voter counts as a copy of records that it lacks, and the one that had them is removed",
        Tests(("tests/raft/test_records_left.py::"
               "test_a_learner_that_lacks_records_becomes_no_voter_until_it_has_them",)),
    ),
    Bug(
        "records-are-asked-of-the-leader-alone",
        "node.replicas.record_copies",
        "RecordCopies._peers_of",
        "[peer for peer in others if peer not in (0, self._core.node)]",
        "[peer for peer in others if peer not in (0, self._core.node)][:1]",
        "what the leader lacks is never copied, although another member has it",
        Tests(("tests/node/replicas/test_record_copies.py::"
               "test_what_the_leader_lacks_is_requested_from_the_other_members",)),
    ),
    Bug(
        "record-that-the-reader-lacks-ends-the-node",
        "node.clients.fetch",
        "FetchHandler._read_range",
        "except (OffsetTooLow, RecordsNotCopied) as error:",
        "except OffsetTooLow as error:",
        "a fetch of a record that is not copied yet is no refusal but an error of the node",
        Tests(("tests/node/clients/test_fetch.py::"
               "test_a_record_that_is_not_copied_yet_is_refused_and_can_be_retried",)),
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
