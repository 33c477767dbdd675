"""Wiped nodes and deleted topics: their replacements, and topics that are created again."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.checkers import check
from chaos.planted.bug import Bug, Seeds, planted
from chaos.planted.catalogue import BUGS
from chaos.simulator import simulation
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.oracle.metadata_oracle import FIRST, has_append_time
from chaos.simulator.simulation import Simulation


def test_lost_nodes_are_replaced_and_come_back_to_a_refusal():
    found = []
    for seed in (1, 2, 6):
        parameters = dataclasses.replace(Parameters.draw(seed, groups=4, safety_ms=20_000),
                                         faults=("wipe", "kill", "transfer"),
                                         fault_interval_ms=700)
        result = simulation.run(parameters)
        assert not result.failure, result.failure
        assert result.event_counts["replaced"] == result.faults["wipe"]
        found.append(result)
    assert sum(result.faults["wipe"] for result in found) >= 5
    assert sum(result.faults["wiped-refused"] for result in found) >= 2


def test_directories_that_are_put_back_are_refused_at_every_start():
    found = []
    for seed in (2, 5, 9):
        parameters = dataclasses.replace(Parameters.draw(seed, groups=4, safety_ms=20_000),
                                         faults=("older-copy", "kill", "power-loss", "transfer"),
                                         fault_interval_ms=600)
        result = simulation.run(parameters)
        assert not result.failure, result.failure
        found.append(result)
    assert sum(result.faults["older-copy"] for result in found) >= 10
    assert sum(result.faults["copy-refused"] for result in found) >= 40
    assert sum(result.event_counts["replaced"] for result in found) >= 3


def test_a_directory_whose_identity_rotted_is_replaced_where_others_are_put_back():
    drawn = Parameters.draw(2, nodes=3, groups=4)
    running = Simulation(dataclasses.replace(drawn, faults=("older-copy", "rot-identity")))
    for node in running.nodes.values():
        node.start()
    running.run_for(1_500)
    node = running.nodes[1]
    running.atlas.note_lost(1)
    node.damage.rot_identity(10, 3)
    node.crash(False)
    node.start()
    running.run_for(20_000)
    assert running.event_counts["identity lost"] == 1 and running.replacements.is_done
    assert 1 not in running.nodes and 4 in running.nodes


def test_a_directory_without_its_identity_is_not_copied():
    """A node with a damaged identity file is replaced.  The copy that is taken at each start read
    the file first, and ended the run.
    """
    found = []
    for seed in (1, 2, 3):
        parameters = dataclasses.replace(Parameters.draw(seed, groups=4, safety_ms=20_000),
                                         faults=("older-copy", "rot-identity", "kill"),
                                         fault_interval_ms=600)
        found.append(simulation.run(parameters))
    assert [result.failure for result in found] == [""] * 3
    for kind in ("older-copy", "rot-identity", "copy-refused"):
        assert sum(result.faults[kind] for result in found) > 0, kind
    assert sum(result.event_counts["identity lost"] for result in found) > 0


def wiped_world() -> tuple[Simulation, int, int]:
    """Return (world, lost, new) of a run without other faults, in which a node was wiped and
    replaced.
    """
    drawn = Parameters.draw(2, nodes=3, groups=4)
    calm = dataclasses.replace(drawn.network, loss=0.0, duplication=0.0, item_loss=0.0, reorder=0.0)
    running = Simulation(dataclasses.replace(drawn, network=calm))
    for node in running.nodes.values():
        node.start()
    running.run_for(1_500)
    running.replacements.wipe(running.nodes[2])
    return running, 2, 4


def test_who_lives_on_is_known_when_a_node_cannot_start_any_more():
    running, lost, new = wiped_world()
    running.run_for(20_000)
    node = running.nodes[1]
    running.atlas.note_lost(1)
    node.damage.rot_identity(10, 3)
    node.crash(False)
    live = running.heal()
    assert lost not in live and 1 not in live and live == [3, new, new + 1]
    running.run_for(20_000)
    assert running.replacements.is_done


def test_a_new_node_is_a_voter_where_the_lost_one_was():
    running, lost, new = wiped_world()
    assert not running.replacements.may_wipe(running.nodes[1])  # one node at a time
    running.run_for(20_000)
    assert running.replacements.is_done
    for group in running.state_checker.groups.values():
        members = group.configuration()
        assert lost not in members.members() and new in members.voters
        assert group.replica(new).durable.holds(group.commit, group.committed[-1])


def test_nothing_that_the_others_say_lets_a_wiped_node_in():
    running, lost, _ = wiped_world()
    node = running.everyone[lost]
    refused = running.faults["wiped-refused"]
    for wait_ms in (100, 20_000):  # first a member of its groups, later removed from all
        running.run_for(wait_ms)
        node.start()
        running.run_for(500)
        assert not node.alive and not node.peers.is_registered
        refused, before = running.faults["wiped-refused"], refused
        assert refused > before


TOPIC_KINDS = ("topic-create", "topic-delete", "topic-recreate")


def with_topics(seed: int) -> Parameters:
    drawn = Parameters.draw(seed, groups=6, safety_ms=20_000)
    return dataclasses.replace(drawn, faults=(*TOPIC_KINDS, "kill", "transfer", "isolate-leader"),
                               fault_interval_ms=500)


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_topics_come_and_go_under_one_name_and_the_checkers_agree(seed):
    recording = Recording()
    result = simulation.run(with_topics(seed), history=recording)
    assert result.failure == ""
    assert all(result.faults[kind] for kind in TOPIC_KINDS)
    assert (
        result.event_counts["partition gone"]
        and result.event_counts["partitions of topics written"] > 3
    )
    verdict = check(recording.finish())
    assert verdict.anomalies == []
    keys = {event.data["key"] for event in recording.events if event.name == "append"
            and "key" in event.data}
    lives = {key.partition("/")[0] for key in keys if not key.startswith("t@")}
    assert len(lives) > len({life.partition("@")[0] for life in lives})  # incarnations of one name


def broken(seed: int, bug: Bug) -> str:
    with planted(bug):
        return simulation.run(with_topics(seed)).failure


def test_an_incarnation_that_is_used_again_is_noticed():
    bug = Bug("used-again", "node.metadata.state_machine", "MetadataState._delete_topic",
              "self.partitions_count -= topic.partitions",
              "self.partitions_count -= topic.partitions\n"
              "    self._next_incarnation = topic.incarnation", "", Seeds())
    assert any("IncarnationsAreNew" in broken(seed, bug) for seed in (2, 4, 5))


def test_a_node_that_is_behind_and_denies_a_partition_is_noticed():
    bug = Bug("denied", "node.clients.router", "Router.unknown",
              "if seen_index > applied:", "if False:", "", Seeds())
    assert any("CreatedIsFound" in broken(seed, bug) for seed in (2, 4, 5, 6, 7))


def test_a_state_that_a_checkpoint_does_not_give_back_is_noticed():
    bug = Bug("forgotten", "node.metadata.state_machine", "MetadataState._fill",
              'self._next_incarnation = snapshot["next_incarnation"]',
              "self._next_incarnation = 1", "", Seeds())
    found = [broken(seed, bug) for seed in (2, 4, 5)]
    assert any("MetadataAreWhatWasCommanded" in text for text in found), found


def test_limits_of_batches_change_while_clients_append():
    found = []
    for seed in (1, 2, 3):
        running = Simulation(dataclasses.replace(
            Parameters.draw(seed, groups=4, safety_ms=20_000), fault_interval_ms=500,
            faults=("topic-settings", "topic-recreate", "switch", "kill", "transfer")))
        running.run()
        found.append(running)
    assert all(running.oracle.metadata.altered for running in found)
    assert sum(running.faults["topic-settings"] for running in found) >= 10
    assert sum(running.workload.too_large for running in found) > 0, "the limits refused nothing"


def test_a_node_that_ignores_the_limit_is_found():
    bug = Bug("limit-ignored", "node.clients.produce", "ProduceHandler._append",
              "len(batch) > place.batch_bytes_max", "False", "", Seeds())
    for seed in range(1, 6):
        parameters = dataclasses.replace(
            Parameters.draw(seed, groups=4, safety_ms=20_000), fault_interval_ms=500,
            faults=("topic-settings", "kill", "transfer"))
        with planted(bug):
            result = simulation.run(parameters)
        if "BatchesKeepTheLimit" in result.failure:
            return
    pytest.fail("not found in 5 seeds")


def test_the_clock_of_timestamps_changes_while_clients_append():
    found = []
    for seed in (1, 2, 3):
        running = Simulation(dataclasses.replace(
            Parameters.draw(seed, groups=4, safety_ms=20_000), fault_interval_ms=500,
            faults=("topic-settings", "clock-drift", "switch", "kill", "transfer")))
        running.run()
        found.append(running)
    stored = [has_append_time(batch.payload) for running in found
              for group in running.state_checker.groups.values()
              for partition in group.partitions.values() if partition.partition >= FIRST
              for batch in partition.batches.values()]
    assert {*stored} == {False, True}


@pytest.mark.parametrize("was, becomes", [
    ("if place.has_append_time else None", "if place.switch is None else None"),
    ("if place.has_append_time else None", "if False else None"),
    ("self._wall_ms() if", "self._wall_ms() + 1 if"),
])
def test_a_leader_that_takes_another_clock_than_the_topics_is_found(was, becomes):
    bug = Bug("clock-ignored", "node.clients.produce", "ProduceHandler._append", was, becomes, "",
              Seeds())
    for seed in range(1, 4):
        parameters = dataclasses.replace(
            Parameters.draw(seed, groups=4, safety_ms=20_000), fault_interval_ms=500,
            faults=("topic-settings", "kill", "transfer"))
        with planted(bug):
            result = simulation.run(parameters)
        if "TimestampsAreOfTheirClock" in result.failure:
            return
    pytest.fail("not found in 3 seeds")


def growing(seed: int, **fields) -> Parameters:
    drawn = Parameters.draw(seed, groups=6, safety_ms=20_000)
    return dataclasses.replace(drawn, fault_interval_ms=500, faults=(
        "topic-grow", "topic-grow", "topic-recreate", "switch", "kill", "transfer",
        "isolate-leader"), **fields)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_partitions_are_added_while_clients_append_and_the_checkers_agree(seed):
    recording = Recording()
    result = simulation.run(growing(seed), history=recording)
    assert result.failure == ""
    assert result.faults["topic-grow"] >= 3 and result.event_counts["additions of partitions"] >= 2
    assert check(recording.finish()).anomalies == []
    written = {event.data["key"] for event in recording.events if event.name == "append"
               and "key" in event.data}
    assert any(int(key.rpartition("/")[2]) >= 3 for key in written), "no added partition is written"


@pytest.mark.parametrize("name, violation", [
    ("added-partitions-have-incarnations-of-others", "IncarnationsAreNew"),
    ("incarnations-of-added-partitions-are-given-again", "IncarnationsAreNew"),
    ("repeated-addition-is-refused", "AdditionsAreWhatWasCommanded"),
    ("added-partitions-are-lost-by-a-start", "MetadataAreWhatWasCommanded"),
])
def test_an_addition_that_gives_wrong_partitions_is_found(name, violation):
    found = []
    for seed in range(1, 6):
        with planted(BUGS[name]):
            found.append(simulation.run(growing(seed)).failure)
        if violation in found[-1]:
            return
    pytest.fail(f"not found in 5 seeds: {found}")


def test_runs_with_topics_may_add_partitions_and_the_other_kinds_stay_as_drawn():
    drawn = [Parameters.draw(seed) for seed in range(1, 60)]
    growing_runs = [each for each in drawn if "topic-grow" in each.faults]
    assert 5 < len(growing_runs) < 40
    assert all(each.faults[-1] == "topic-grow" and len({*each.faults}) == len(each.faults)
               for each in growing_runs)
