"""Bugs to plant in moves: partitions between groups, replicas between nodes."""

from __future__ import annotations

from chaos.planted.bug import Bug, Histories, Seeds, Tests

#: Faults while partitions are switched.
SWITCHES = ("switch", "switch", "switch", "kill", "transfer", "isolate-leader")
#: Faults while plans are carried out.
PLANS = ("plan", "plan", "plan", "kill", "transfer")

BUGS = (
    Bug(
        "switch-opens-before-seal",
        "node.replicas.partition_switch",
        "PartitionSwitcher._sealed",
        "tail.sealed(partition) if tail is not None else None",
        "(PartitionSeal(place.epoch, tail.next_offset(partition), 0, 0, b'')\n"
        "              if tail is not None and tail.epoch_of(partition) == place.epoch else None)",
        "a partition goes on in the next group before it has ended in the one that it leaves",
        Tests(("tests/node/replicas/test_partition_switch.py::test_a_switch_step_by_step",)),
        Seeds(faults=SWITCHES),
    ),
    Bug(
        "windows-are-not-carried",
        "multiraft.partitions.state",
        "PartitionStates.sealed",
        "export_windows(self.windows(partition))",
        "b''",
        "a partition forgets its producers when it is switched (A2, S42)",
        Tests(("tests/partitions/test_state_switch.py",)),
        Seeds(faults=SWITCHES),
    ),
    Bug(
        "old-voter-removed-early",
        "node.rebalance.replica_change",
        "_learning",
        "_change(move, view, seen, seen.voters,",
        "_change(move, view, seen, [node for node in seen.voters if node in move.new],",
        "a voter goes when its successor has only begun to learn (S33)",
        Tests(("tests/node/rebalance/test_scheduler.py::test_a_change_of_replicas_step_by_step",)),
        Seeds(faults=PLANS, members=False),
    ),
    Bug(
        "late-change-is-accepted",
        "node.rebalance.participant",
        "PlanParticipant.start_replica_change",
        "index != request.expected_index",
        "index < request.expected_index",
        "a change of members is made whatever they are by now: what came twice or late undoes what "
        "came after it (S33)",
        Tests(
            (
                "tests/chaos/simulator/test_rebalance.py"
                "::test_a_change_that_comes_once_more_later_changes_nothing",
            )
        ),
    ),
    Bug(
        "retry-answered-with-the-end",
        "multiraft.partitions.state",
        "PartitionStates.validate_append",
        "ValidatedAppend(original.base_offset, state",
        "ValidatedAppend(state.next_offset, state",
        "a retry is answered with an offset at which something else is (A14)",
        Histories(
            ("inconsistent-offsets", "reassigned-offset"), ("client-cut", "kill", "isolate-leader")
        ),
    ),
)
