"""Topics and progress: A27, A28, A33."""

from __future__ import annotations

import pytest

from chaos.backends.backend import CLIENTS
from chaos.checkers import CheckerLimits
from chaos.history import FINAL, HEAL
from tests.chaos.checkers.timeline import KEY, Timeline


def create(line: Timeline, incarnation: int, topic: str = "t", process: int = 1) -> None:
    line.ok(line.invoke("create_topic", process, topic=topic, partitions=1),
            incarnation=incarnation)


def describe(line: Timeline, incarnation: int, process: int = 1, epoch: int = 1,
             groups: tuple[int, ...] = ()) -> None:
    line.ok(line.invoke("describe", process, topic="t"), incarnation=incarnation, epoch=epoch,
            groups=list(groups))


def delete(line: Timeline, incarnation: int, process: int = 1) -> int:
    return line.invoke("delete_topic", process, topic="t", incarnation=incarnation)


def test_what_a_process_created_it_finds():
    line = Timeline()
    create(line, 7)
    describe(line, 7)
    assert line.ids() == set()


def test_what_a_process_created_is_not_gone():
    line = Timeline()
    create(line, 7)
    describe(line, -1)
    assert line.ids() == {"A27"}


def test_what_a_process_saw_is_not_gone():
    line = Timeline()
    create(line, 7)
    describe(line, 7, process=2)
    describe(line, -1, process=2)
    assert line.ids() == {"A27"}


def test_another_process_may_be_behind_and_it_is_noted():
    line = Timeline()
    create(line, 7)
    describe(line, -1, process=2)
    verdict = line.check()
    assert verdict.anomalies == []
    assert "metadata: 1 answers were behind what another process knew" in verdict.notes


def test_after_healing_nobody_is_behind():
    line = Timeline()
    create(line, 7)
    line.phase(FINAL)
    describe(line, -1, process=2)
    assert line.ids() == {"A27"}


def test_a_question_that_overlaps_the_creation_may_find_nothing():
    line = Timeline()
    asking = line.invoke("describe", topic="t")
    create(line, 7)
    line.ok(asking, incarnation=-1, epoch=-1, groups=[])
    assert line.ids() == set()


@pytest.mark.parametrize("end", ["ok", "info", None])
def test_what_somebody_deletes_may_be_gone(end):
    line = Timeline()
    create(line, 7)
    operation = delete(line, 7, process=3)
    if end:
        getattr(line, end)(operation)
    describe(line, -1)
    assert line.ids() == set()


def test_a_refused_deletion_deletes_nothing():
    line = Timeline()
    create(line, 7)
    line.fail(delete(line, 7))
    describe(line, -1)
    assert line.ids() == {"A27"}


def test_an_earlier_life_does_not_come_back():
    line = Timeline()
    create(line, 7)
    line.ok(delete(line, 7))
    create(line, 9)
    describe(line, 7)
    assert line.ids() == {"A27"}


def test_a_name_is_created_again_after_its_deletion():
    line = Timeline()
    create(line, 7)
    line.ok(delete(line, 7))
    describe(line, -1)
    create(line, 9)
    describe(line, 9)
    assert line.ids() == set()


def test_a_name_is_not_created_twice():
    line = Timeline()
    create(line, 7)
    create(line, 9, process=2)
    assert line.ids() == {"A27"}


def test_an_unknown_deletion_may_have_made_room_for_a_second_creation():
    line = Timeline()
    create(line, 7)
    line.info(delete(line, 7))
    create(line, 9, process=2)
    assert line.ids() == set()


def test_an_incarnation_is_given_out_once():
    line = Timeline()
    create(line, 7)
    create(line, 7, topic="u")
    assert line.ids() == {"A27"}


def test_one_life_at_one_epoch_has_one_place():
    line = Timeline()
    create(line, 7)
    describe(line, 7, epoch=1, groups=(3, 4))
    describe(line, 7, epoch=2, groups=(3, 5), process=2)
    describe(line, 7, epoch=2, groups=(3, 5))
    assert line.ids() == set()
    describe(line, 7, epoch=2, groups=(3, 4), process=3)
    assert line.ids() == {"A27"}


def test_a_deleted_topic_is_not_read_after_healing():
    line = Timeline()
    line.appended([1], 0)
    line.ok(delete(line, 7))
    line.was_read([1])
    assert line.ids() == set()  # a replica that has not received it yet
    line.phase(FINAL)
    line.was_read([1])
    assert line.ids() == {"A27"}


# ---- progress ------------------------------------------------------------------------------------

SHORT = CheckerLimits(nodes=3, recover_us=10_000_000, available_us=10_000_000)


def asked_for(line: Timeline, seconds: int, end: str = "info") -> None:
    """Request an append each second, without an acknowledgement."""
    for number in range(seconds):
        operation = line.append([1000 * (line.now_us // 1_000_000) + number])
        line.sleep(1)
        getattr(line, end)(operation)


def test_a_key_that_takes_no_append_after_the_heal_did_not_recover():
    line = Timeline()
    line.fault("partition", True)
    line.phase(HEAL)
    asked_for(line, 12)
    assert line.ids(SHORT) == {"A28"}


def test_a_key_that_takes_an_append_in_time_recovered():
    line = Timeline()
    line.fault("partition", True)
    line.phase(HEAL)
    asked_for(line, 8)
    line.appended([1], 0)
    assert line.ids(SHORT) == set()


def test_an_append_that_was_open_at_the_heal_is_waited_for_from_the_heal_on():
    line = Timeline()
    line.fault("partition", True)
    operation = line.append([1])
    line.sleep(60)
    line.phase(HEAL)
    line.sleep(5)
    line.ok(operation, offset=0)
    assert line.ids(SHORT) == set()


def test_a_key_that_nobody_asks_for_is_not_waited_for():
    line = Timeline()
    line.fault("partition", True)
    line.phase(HEAL)
    line.fail(line.append([1]))
    line.sleep(60)
    line.appended([2], 0)
    assert line.ids(SHORT) == set()


def test_a_key_whose_final_reads_are_never_answered_did_not_recover():
    line = Timeline()
    line.appended([1], 0)
    line.was_read([1])
    line.phase(FINAL)
    line.info(line.read(0, final=True))
    assert line.ids() == {"A28"}


@pytest.mark.parametrize("end", ["info", "fail"])
def test_a_key_without_an_append_while_nothing_is_wrong_is_unavailable(end):
    line = Timeline()
    asked_for(line, 12, end)
    assert line.ids(SHORT) == {"A33"}


def test_one_node_away_leaves_a_quorum():
    line = Timeline()
    line.fault("kill", True, 2)
    asked_for(line, 12)
    assert line.ids(SHORT) == {"A33"}


@pytest.mark.parametrize("nodes", [(1, 2), ()])
def test_a_quorum_that_faults_touch_may_be_unavailable(nodes):
    line = Timeline()
    line.fault("pause", True, *nodes)
    asked_for(line, 12)
    line.fault("pause", False, *nodes)
    line.appended([1], 0)
    assert line.ids(SHORT) == set()


@pytest.mark.parametrize(("copies", "nodes", "found"), [
    (3, (2, 4), set()), (3, (2,), {"A33"}), (5, (2, 4), {"A33"})])
def test_a_quorum_is_one_of_a_group_that_has_fewer_members_than_the_cluster_has_nodes(
        copies, nodes, found):
    line = Timeline()
    line.fault("kill", True, *nodes)
    asked_for(line, 12)
    line.fault("kill", False, *nodes)
    line.appended([1], 0)
    assert line.ids(SHORT._replace(nodes=5, copies=copies)) == found


def test_a_leader_that_clients_are_kept_from_leads_on_and_may_be_unavailable():
    line = Timeline()
    line.fault("partition", True, CLIENTS, 2)
    asked_for(line, 12)
    line.fault("partition", False, CLIENTS, 2)
    line.appended([1], 0)
    of_five = SHORT._replace(nodes=5)
    assert line.ids(of_five) == set()
    asked_for(line, 12)
    assert line.ids(of_five) == {"A33"}, "once clients reach it again it has to answer"


def test_each_fault_gives_time_to_elect():
    line = Timeline()
    for _ in range(3):
        line.fault("kill", True, 2)
        asked_for(line, 6)
        line.fault("kill", False, 2)
        asked_for(line, 1)
    assert line.ids(SHORT) == set()


def test_an_append_that_hangs_is_waited_for():
    line = Timeline()
    line.append([1])
    line.sleep(12)
    line.was_read([])
    assert line.ids(SHORT) == {"A33"}


def test_a_topic_that_somebody_deletes_need_not_be_available():
    line = Timeline()
    line.invoke("delete_topic", topic="t", incarnation=7)
    asked_for(line, 12, "fail")
    assert line.ids(SHORT) == set()


def test_keys_are_named():
    line = Timeline()
    asked_for(line, 12)
    assert line.check(SHORT).anomalies[0].key == KEY
