"""Checkers of the replicas' logs: A18, A19 (votes), A20, A25 (held by no majority), and logs as
evidence about a history.
"""

from __future__ import annotations

import pytest

from chaos.history import END, FINAL, LOG, LOG_START, Event, incarnation_of
from chaos.replicas import KEYS_DIFFER, NO_KEY, Dump
from tests.chaos.checkers.dumps import GROUP, Log, cluster
from tests.chaos.checkers.timeline import KEY, OTHER, Timeline


def found(*logs: Log | None) -> set[str]:
    """Return ids of anomalies in logs without a history."""
    return Timeline().ids(replicas=cluster(*logs))


# ---- logs beside each other ----------------------------------------------------------------------


def test_equal_logs_agree():
    assert found(*(Log().noop(1).data(1, 4).noop(2) for _ in range(3))) == set()


def test_a_shorter_log_agrees():
    assert found(Log().noop(1).noop(1), Log().noop(1), Log()) == set()


def test_other_contents_at_one_index_and_term_are_divergent():
    assert found(Log().noop(1).data(1, 4), Log().noop(1).data(1, 5), Log()) == {"A18"}


def test_another_term_below_a_common_entry_is_divergent():
    assert found(Log().noop(1).noop(2).noop(3), Log().noop(1).noop(1).noop(3)) == {"A18"}


def test_a_suffix_of_another_leader_is_not_divergent():
    """A deposed leader that has not returned."""
    assert found(Log().noop(1).noop(3), Log().noop(1).noop(3),
                 Log().noop(1).noop(2).noop(2)) == set()


def test_another_entry_below_both_commits_is_divergent():
    ids = found(Log().noop(1).noop(3).commit(2), Log().noop(1).noop(2).commit(2),
                Log().noop(1).noop(3))
    assert "A18" in ids


def test_a_difference_below_a_snapshot_cannot_be_seen():
    assert found(Log().noop(1).noop(2).noop(3), Log(first_index=3).noop(3)) == set()


def test_a_log_that_begins_at_a_snapshot_is_compared_from_there():
    assert found(Log().noop(1).noop(2).data(3, 4), Log(first_index=3).data(3, 5)) == {"A18"}


def test_a_gap_agrees_with_any_contents_at_its_index_and_term():
    assert found(Log().noop(1).data(1, 4).noop(2), Log().noop(1).gap(1).noop(2)) == set()


def test_a_gap_of_another_term_is_divergent():
    assert found(Log().noop(1).data(2, 4).noop(3), Log().noop(1).gap(1).noop(3)) == {"A18"}


@pytest.mark.parametrize("second", [Log().noop(1).damaged(1).noop(2),
                                    Log().noop(1).unreadable().noop(2)])
def test_damage_is_not_divergence(second):
    assert found(Log().noop(1).data(1, 4).noop(2), second, Log().noop(1)) == set()


def test_damage_hides_no_difference_beside_it():
    assert found(Log().noop(1).data(1, 4).data(1, 6),
                 Log().noop(1).damaged(1).data(1, 7)) == {"A18"}


# ---- commit, leaders, votes ----------------------------------------------------------------------


def test_a_higher_term_at_a_committed_index_means_an_incomplete_leader():
    ids = found(Log().noop(1).noop(1).commit(2), Log().noop(1).noop(1).commit(2),
                Log().noop(1).noop(2))
    assert ids == {"A20", "A25"}


def test_a_lower_term_at_a_committed_index_is_an_old_suffix():
    assert found(Log().noop(1).noop(3).commit(2), Log().noop(1).noop(3).commit(2),
                 Log().noop(1).noop(2)) == set()


def test_what_is_committed_is_held_by_a_majority():
    assert found(Log().noop(1).noop(1).commit(2), Log().noop(1), Log().noop(1)) == {"A25"}


def test_a_node_without_a_dump_may_hold_it():
    assert found(Log().noop(1).noop(1).commit(2), Log().noop(1), None) == set()


def test_a_damaged_replica_may_hold_it():
    damaged = Log().noop(1)
    damaged.log.quarantined = "rot"
    assert found(Log().noop(1).noop(1).commit(2), damaged, Log().noop(1)) == set()


def test_the_voters_are_those_of_the_last_configuration():
    """One voter is left, and may commit alone."""
    assert found(Log().noop(1).members(1, 1).noop(1).commit(3), Log().noop(1).members(1, 1),
                 Log().noop(1)) == set()


def test_a_learner_does_not_count():
    assert found(Log().noop(1).noop(1).commit(2, 1, 2, 3), Log().noop(1), Log().noop(1),
                 Log().noop(1).noop(1)) == {"A25"}


def test_hard_states_go_up():
    assert found(Log().noop(1).vote(1, 0).vote(1, 2).vote(3, 1).vote(4, 0)) == set()


@pytest.mark.parametrize("log", [Log().noop(1).vote(3, 1).vote(2, 1),
                                 Log().noop(1).vote(3, 1).vote(3, 2),
                                 Log().noop(1).vote(3, 1).vote(3, 0)])
def test_hard_states_that_go_back_are_found(log):
    assert found(log) == {"A19"}


# ---- logs and a history --------------------------------------------------------------------------


def three(log) -> list[Dump]:
    return cluster(log(), log(), log())


def test_unknown_appends_are_resolved():
    line = Timeline()
    line.appended([1], 0)
    line.info(line.append([2, 3]))
    line.info(line.append([4]))
    line.append([5])
    verdict = line.check(replicas=three(lambda: Log().noop(1).data(1, 1).data(1, 2, 3)))
    assert verdict.anomalies == []
    assert verdict.checked["unknown_happened"] == 1
    assert verdict.checked["unknown_never"] == 2


def test_unknown_appends_of_a_group_without_logs_stay_open():
    line = Timeline()
    line.info(line.append([1], key=OTHER))
    assert line.check(replicas=three(lambda: Log().noop(1))).checked["unknown_open"] == 1


def test_an_append_that_failed_and_is_in_the_logs_is_aborted():
    line = Timeline()
    line.fail(line.append([1]))
    assert line.ids(replicas=three(lambda: Log().noop(1).data(1, 1))) == {"A4"}


def test_an_unknown_append_that_is_in_the_logs_too_low_breaks_real_time():
    line = Timeline()
    line.info(line.append([9]))
    line.appended([1], 1)
    line.info(line.append([2]))
    assert line.ids(replicas=three(lambda: Log().noop(1).data(1, 2).data(1, 1))) == {"A14"}


def test_an_unknown_append_that_is_in_the_logs_twice_is_a_duplicate():
    line = Timeline()
    line.info(line.append([1], producer=3, epoch=0, sequence=0))
    line.append([2])
    assert line.ids(replicas=three(lambda: Log().noop(1).data(1, 1).data(1, 1))) == {"A2", "A23"}


def test_an_acknowledged_record_that_no_majority_holds_is_lost():
    line = Timeline()
    line.appended([1], 0)
    line.appended([2], 1)
    logs = cluster(Log().noop(1).data(1, 1).data(1, 2), Log().noop(1).data(1, 1),
                   Log().noop(1).data(1, 1))
    assert line.ids(replicas=logs) == {"A3"}


def test_a_record_that_was_read_and_that_no_majority_holds_was_taken_back():
    line = Timeline()
    line.info(line.append([1]))
    line.was_read([1])
    logs = cluster(Log().noop(1), Log().noop(1), Log().noop(1).data(1, 1))
    line.ok(line.invoke("describe", topic="t"), incarnation=7, epoch=1, groups=[GROUP])
    assert line.ids(replicas=logs) == {"A17"}


def test_an_acknowledged_record_that_two_of_three_hold_is_not_lost():
    line = Timeline()
    line.appended([1], 0)
    logs = cluster(Log().noop(1).data(1, 1), Log().noop(1), Log().noop(1).data(1, 1))
    assert line.ids(replicas=logs) == set()


def switched(first: list[int], second: list[int]) -> list[Dump]:
    """Return a partition whose next group has a lower number than the previous one."""
    logs = {GROUP: Log().noop(1), GROUP - 1: Log().noop(1)}
    for offset, value in enumerate([*first, *second]):
        logs[GROUP if offset < len(first) else GROUP - 1].data(1, value, offset=offset)
    return [Dump(node, -1, {group: log.log for group, log in logs.items()}) for node in (1, 2, 3)]


def test_a_partition_that_was_switched_is_in_several_groups():
    line = Timeline()
    for offset in range(4):
        line.appended([offset], offset)
    assert line.ids(replicas=switched([0, 1], [2, 3])) == set()
    assert line.ids(replicas=switched([0, 1], [2])) == {"A3"}
    assert line.ids(replicas=switched([0, 1, 2], [2, 3])) != set(), "two groups took one offset"


def test_another_value_than_the_acknowledged_one_in_the_logs_is_inconsistent():
    line = Timeline()
    line.info(line.append([2]))
    line.appended([1], 0)
    assert line.ids(replicas=three(lambda: Log().noop(1).data(1, 2))) == {"A1", "A3"}


def test_what_is_not_committed_is_not_believed():
    """The tail of one log: an append of unknown outcome that did not happen, or not yet."""
    line = Timeline()
    line.info(line.append([1]))
    logs = cluster(Log().noop(1).data(1, 1), Log().noop(1), Log().noop(1))
    verdict = line.check(replicas=logs)
    assert (verdict.anomalies, verdict.checked["unknown_happened"]) == ([], 0)


def test_damaged_data_is_read_where_it_is_whole():
    line = Timeline()
    line.appended([1], 0)
    logs = cluster(Log().noop(1).damaged(1), Log().noop(1).data(1, 1), Log().noop(1).damaged(1))
    assert line.ids(replicas=logs) == set()


def test_data_that_nobody_can_read_loses_nothing_for_certain():
    line = Timeline()
    line.appended([1], 0)
    line.appended([2], 1)
    logs = three(lambda: Log().noop(1).data(1, 1).damaged(1))
    assert line.ids(replicas=logs) == set()


def test_the_order_of_a_producer_is_checked_in_the_logs():
    line = Timeline()
    line.info(line.append([1], producer=4))
    line.info(line.append([2], producer=4))
    assert line.ids(replicas=three(lambda: Log().noop(1).data(1, 2).data(1, 1))) == {"A12"}


def test_a_record_of_another_key_in_a_partition_is_a_leak():
    line = Timeline()
    line.append([1])
    line.append([2], key=OTHER)
    logs = three(lambda: Log().noop(1).data(1, 1).data(1, 2, key=OTHER, partition=70, offset=1))
    assert line.ids(replicas=logs) == {"A29"}


@pytest.mark.parametrize("named", [KEYS_DIFFER, NO_KEY])
def test_a_record_of_nobody_in_a_partition_is_a_leak(named):
    line = Timeline()
    line.append([1])
    line.append([2])
    logs = three(lambda: Log().noop(1).data(1, 1).data(1, 2, named=named))
    assert line.ids(replicas=logs) == {"A29"}


def test_partitions_of_others_are_none_of_our_business():
    line = Timeline()
    line.append([1])
    logs = three(lambda: Log().noop(1).data(1, 88, partition=3, named=NO_KEY))
    assert line.ids(replicas=logs) == set()


def test_a_deleted_topic_is_in_the_logs_and_loses_nothing():
    line = Timeline()
    line.appended([1], 0)
    line.ok(line.invoke("delete_topic", topic="t", incarnation=7))
    logs = three(lambda: Log().noop(1).data(1, 1))
    assert line.ids(replicas=logs) == set()


def test_a_good_history_with_its_logs_passes():
    line = Timeline()
    line.appended([1], 0)
    line.info(line.append([2]))
    line.phase(FINAL)
    line.finale([1, 2])
    line.phase(END)
    verdict = line.check(replicas=three(lambda: Log().noop(1).data(1, 1).data(1, 2).noop(2)))
    assert verdict.anomalies == []
    assert verdict.checked["log_entries"] == 12
    assert line.check().anomalies == []
    assert KEY in {event.data.get("key") for event in line.events}


# ---- deleted records -----------------------------------------------------------------------------


def shortened(start: int, committed: bool = True) -> list[Dump]:
    """Return logs of values 1 to 5, one batch each, of which a log start deletes the first ones;
    not committed, it is in the leader's log only."""
    def log(is_there: bool) -> Log:
        made = Log().noop(1)
        for value in range(1, 6):
            made.data(1, value)
        return made.log_start(1, start) if is_there else made

    return cluster(log(True), log(committed), log(committed))


def deleting(*, read_first: bool = True) -> Timeline:
    line = Timeline()
    for offset in range(5):
        line.appended([offset + 1], offset)
    if read_first:
        line.was_read([1, 2, 3, 4, 5])
    return line


def refused(line: Timeline, offset: int) -> None:
    line.fail(line.read(offset), "OffsetOutOfRange")


@pytest.mark.parametrize("read_first", [True, False])
def test_a_committed_log_start_explains_what_is_missing_below_it(read_first):
    line = deleting(read_first=read_first)
    refused(line, 0)
    refused(line, 1)
    line.assign({KEY: 0})
    line.poll({KEY: [[2, [3, 4, 5]]]})
    line.was_read([3, 4, 5], offset=0, at=2, start=2)
    line.was_read([3, 4, 5], offset=2, start=2, process=99, final=True)
    line.offsets(5, final=True)
    assert line.ids(replicas=shortened(2)) == set()


@pytest.mark.parametrize("replicas", [[], shortened(1), shortened(2, committed=False)])
def test_a_record_that_no_committed_log_start_deletes_is_missed(replicas):
    """There is no log start, or a lower one, or one that was not committed."""
    line = deleting()
    line.was_read([3, 4, 5], offset=0, at=2, start=2)
    assert line.ids(replicas=replicas) == {"A7", "A17", "A32"}
    line = deleting()
    refused(line, 1)
    assert line.ids(replicas=replicas) == {"A17"}
    line = deleting()
    line.assign({KEY: 0})
    line.poll({KEY: [[2, [3, 4, 5]]]})
    assert line.ids(replicas=replicas) == {"A9"}


def test_a_record_above_the_log_start_that_is_deleted_with_the_rest_is_lost():
    line = deleting(read_first=False)
    line.was_read([4, 5], offset=0, at=3, start=3)
    line.was_read([4, 5], offset=3, start=3, process=99, final=True)
    line.offsets(5, final=True)
    found = line.check(replicas=shortened(2)).anomalies
    assert {anomaly.id for anomaly in found} == {"A32", "A7", "A3", "A24"}
    said = " ".join(anomaly.text for anomaly in found)
    assert "leaves out the offsets 2 to 2" in said and "its committed log start is 2" in said
    assert "value 3 was acknowledged at offset 2" in said and "1 of 5 records" in said


def test_a_start_that_an_answer_about_offsets_gives_is_judged_too():
    line = deleting()
    asked = line.invoke("offsets", 3, key=KEY, mode="linearizable")
    line.ok(asked, start=3, high_watermark=5)
    assert line.ids(replicas=shortened(3)) == set()
    assert line.ids(replicas=shortened(2)) == {"A32"}


def test_a_log_start_of_any_group_of_a_switched_partition_counts():
    """The last group has it, and none of the records below it."""
    line = deleting()
    refused(line, 1)
    home = cluster(*(Log().noop(1).data(1, 1).data(1, 2).data(1, 3) for _ in range(3)))
    for dump in home:
        later = Log().noop(1).data(1, 4, offset=3).data(1, 5, offset=4).log_start(1, 2)
        dump.logs[GROUP + 1] = later.log
    assert line.ids(replicas=home) == set()


def test_the_answer_to_a_deletion_gives_a_log_start_that_is_committed():
    line = deleting()
    line.ok(line.invoke("delete_records", 3, key=KEY, before=3), log_start=3)
    line.fail(line.invoke("delete_records", 3, key=KEY, before=90), "OffsetOutOfRange")
    assert line.ids(replicas=shortened(3)) == set()
    assert line.ids(replicas=shortened(2)) == {"A32"}
    assert line.ids() == {"A32"}


def test_a_partition_of_which_no_record_is_left_is_known_by_its_number():
    line = deleting()
    refused(line, 4)
    line.offsets(5, final=True)
    number = incarnation_of(KEY)
    emptied = cluster(*(Log().noop(1).gap(1) for _ in range(3)))
    for dump in emptied:
        log = dump.logs[GROUP]
        log.put(3, 1, "log_start", 5)
        log.log_starts[3] = [(number, 5)]
    assert line.ids(replicas=emptied) == set()
    for dump in emptied:
        dump.logs[GROUP].log_starts[3] = [(number + 1, 5)]
    assert line.ids(replicas=emptied) == {"A17"}


def test_a_log_start_in_the_history_is_committed():
    line = deleting()
    line.events.append(Event(line.now_us, LOG, -1, -1, LOG_START, {"key": KEY, "log_start": 2}))
    refused(line, 1)
    assert line.ids() == set()
    refused(line, 2)
    assert line.ids() == {"A17"}


# ---- compacted logs ------------------------------------------------------------------------------


def compacted(*starts: int, log_start: int = 2) -> list[Dump]:
    """Return logs of values 1 to 5 and a log start, each with a Raft start of its own."""
    return cluster(*(shortened_log(log_start).compact(start) for start in starts))


def shortened_log(log_start: int, applied: int = 7) -> Log:
    log = Log().noop(1)
    for value in range(1, 6):
        log.data(1, value)
    return log.log_start(1, log_start).noop(1).checkpoint(applied)


@pytest.mark.parametrize("starts", [(8, 8, 8), (1, 8, 8), (3, 5, 9), (9, 9, 9)])
def test_a_log_start_whose_entry_is_compacted_is_in_the_checkpoint(starts):
    """Also where nothing is left of the logs."""
    line = deleting()
    refused(line, 1)
    line.was_read([3, 4, 5], offset=2, start=2, process=99, final=True)
    line.offsets(5, final=True)
    assert line.ids(replicas=compacted(*starts)) == set()
    refused(line, 3)
    assert line.ids(replicas=compacted(*starts)) == {"A17"}


def test_checkpoints_that_agree_explain_nothing_that_no_entry_of_a_whole_log_sets():
    line = deleting()
    refused(line, 3)
    for first, ids in ((1, {"A17"}), (8, set())):
        logs = [shortened_log(2).compact(first) for _ in range(3)]
        for each in logs:
            (partition,) = each.log.partitions
            each.log.partitions[partition] = each.log.partitions[partition]._replace(log_start=4)
        assert line.ids(replicas=cluster(*logs)) == ids


@pytest.mark.parametrize("applied", [4, 7])
@pytest.mark.parametrize("first", [1, 5, 8])
def test_a_log_start_of_one_checkpoint_alone_is_divergent_and_explains_nothing(applied, first):
    """Of the replica that has applied the least, or as much as the others."""
    line = deleting()
    refused(line, 3)
    alone = shortened_log(2, applied).compact(min(first, applied + 1))
    logs = cluster(alone, shortened_log(2).compact(first), shortened_log(2).compact(first))
    assert line.ids(replicas=logs) == {"A17"}
    (partition,) = alone.log.partitions
    alone.log.partitions[partition] = alone.log.partitions[partition]._replace(log_start=4)
    assert line.ids(replicas=logs) == {"A17", "A18"}


def test_a_log_start_that_no_entry_sets_is_divergent():
    """Of the replica that has applied the most."""
    alone = shortened_log(2).noop(1).noop(1).checkpoint(9).compact(9)
    others = [shortened_log(2).noop(1).noop(1) for _ in range(2)]
    assert found(alone, *others) == set()
    (partition,) = alone.log.partitions
    alone.log.partitions[partition] = alone.log.partitions[partition]._replace(log_start=4)
    assert found(alone, *others) == {"A18"}
    for log in (alone, *others):
        log.log_start(1, 4)
        log.noop(1)
    assert found(alone, *others) == {"A18"}, "the entry stands behind the checkpoint"


def test_an_opening_between_two_checkpoints_may_set_a_log_start():
    early = Log().noop(1).data(1, 1).checkpoint(2).noop(1)
    (partition,) = early.log.partitions
    for is_open in (True, False):
        late = Log().noop(1).data(1, 1).noop(1).checkpoint(3)
        if is_open:
            late.log.opened[3] = partition
        late.log.partitions[partition] = late.log.partitions[partition]._replace(log_start=1)
        assert found(late, early, early) == (set() if is_open else {"A18"})


def test_a_member_behind_the_raft_start_of_the_others_holds_what_it_has():
    ahead = [Log().noop(1).data(1, 1).noop(1).noop(1).checkpoint(4).compact(start)
             for start in (4, 5)]
    assert found(*ahead, Log().noop(1)) == set()
    behind = [Log().noop(1), Log().noop(1)]
    assert found(ahead[0], *behind) == found(ahead[1], *behind) == {"A25"}


def test_records_of_compacted_logs_are_evidence():
    line = Timeline()
    line.appended([1], 0)
    line.info(line.append([2]))
    line.appended([3], 2)

    def log() -> Log:
        return Log().noop(1).data(1, 1).data(1, 2).data(1, 3).noop(1).checkpoint(5).compact(6)

    verdict = line.check(replicas=three(log))
    assert (verdict.anomalies, verdict.checked["unknown_happened"]) == ([], 1)
    line.appended([4], 3)
    assert line.ids(replicas=three(log)) == {"A3"}
    line = Timeline()
    line.append([1, 2])
    line.appended([3], 0)
    assert "A1" in line.ids(replicas=three(log)), "a record stands at an acknowledged offset"


def test_different_records_are_divergent():
    logs = [Log().noop(1).data(1, value).noop(1).checkpoint(3).compact(4) for value in (4, 5, 4)]
    assert found(*logs) == {"A18"}
    logs[1].log.records[2] = logs[1].log.records[2]._replace(batch=None)
    assert found(*logs) == set(), "it is damaged"


def lacking(*lacks: int, log_start: int = 0) -> list[Log]:
    """Return three logs with the records of values 1 to 3; some lack the second one."""
    made = [Log().noop(1).data(1, 1).data(1, 2).data(1, 3).log_start(1, log_start).checkpoint(5)
            .compact(6) for _ in range(3)]
    for node in lacks:
        del made[node].log.records[3]
    return made


def test_a_record_above_its_log_start_is_held_by_a_majority():
    assert found(*lacking(1)) == set()
    assert found(*lacking(1, 2)) == {"A25"}
    assert found(*lacking(1, 2, log_start=2)) == set()
    assert found(*lacking(1)[:2], None) == set(), "a node without a dump may have it"
    damaged, uncopied = lacking(1, 2), lacking(1, 2)
    damaged[1].log.missing = {3}
    uncopied[2].log.uncopied = [(2, 4)]
    assert found(*damaged) == found(*uncopied) == set()
    rotten = cluster(*lacking(1, 2))
    rotten[1].unreadable = 1
    assert Timeline().ids(replicas=rotten) == set()


def test_records_of_a_partition_that_checkpoints_have_forgotten_may_be_on_one_node():
    """Its topic was deleted; one node has not removed the segments yet."""
    def logs(*keep: int) -> list[Log]:
        made = lacking(1, 2)
        for node in {0, 1, 2} - {*keep}:
            made[node].log.partitions = {}
        return made

    assert found(*logs()) == set()
    assert found(*logs(1)) == {"A25"}, "the second node has not applied the deletion"


def forgotten() -> list[Dump]:
    """Return compacted logs with records of a partition that no checkpoint has."""
    logs = [shortened_log(0).compact(8) for _ in range(3)]
    for log in logs:
        log.log.partitions = {}
    return cluster(*logs)


def test_a_partition_is_forgotten_after_the_deletion_of_its_topic_only():
    line = deleting()
    assert line.ids(replicas=forgotten()) == {"A3"}
    line.ok(line.invoke("delete_topic", topic="t", incarnation=7))
    assert line.ids(replicas=forgotten()) == set()


@pytest.mark.parametrize("kept,ids", [
    (forgotten, set()),
    (lambda: cluster(*(Log().noop(1) for _ in range(3))), {"A17", "A32"}),
    (lambda: compacted(8, 8, 8, log_start=0), {"A17", "A32"}),
])
def test_log_starts_of_a_deleted_topic_are_judged_while_they_are_known(kept, ids):
    """In logs from index 1 on, and in checkpoints that have the partition."""
    line = deleting()
    refused(line, 0)
    line.was_read([3, 4, 5], offset=2, start=2)
    line.ok(line.invoke("delete_topic", topic="t", incarnation=7))
    assert line.ids(replicas=kept()) == ids


def deleted_with_its_topic(last_of_whole: int, committed: int) -> list[Dump]:
    """Return the logs of a partition that no checkpoint has: two compacted ones, and one from index
    1 up to ``last_of_whole``, committed up to ``committed``.  The log start is at index 7."""
    logs = [shortened_log(2).noop(1).compact(9) for _ in range(2)]
    whole = shortened_log(2).noop(1)
    for column in (whole.log.terms, whole.log.kinds, whole.log.contents):
        del column[last_of_whole:]
    whole.log.log_starts = {at: rows for at, rows in whole.log.log_starts.items()
                            if at <= last_of_whole}
    whole.log.commit = whole.log.applied = committed
    for log in (*logs, whole):
        log.log.partitions = {}
    return cluster(*logs, whole)


@pytest.mark.parametrize("last,committed,start,ids", [
    (9, 8, 2, set()),
    (9, 8, 3, {"A17", "A32"}),  # beyond what the entry says
    (9, 6, 3, set()),  # the entry may be another one in the compacted logs
    (6, 6, 3, set()),  # the entry is in compacted logs only
])
def test_one_whole_log_tells_the_log_starts_that_others_have_compacted(last, committed, start, ids):
    line = deleting()
    refused(line, start - 1)
    line.was_read([4, 5], offset=3, start=start)
    line.ok(line.invoke("delete_topic", topic="t", incarnation=7))
    assert line.ids(replicas=deleted_with_its_topic(last, committed)) == ids


@pytest.mark.parametrize("log_start", [0, 2])
def test_an_end_in_checkpoints_does_not_stand_for_records_that_are_in_no_log(log_start):
    line = deleting()
    number = incarnation_of(KEY)
    logs = [shortened_log(log_start).compact(8) for _ in range(3)]
    for log in logs:
        (extent,) = log.log.partitions.values()
        log.log.partitions[number] = extent
    line.offsets(5, final=True)
    assert line.ids(replicas=cluster(*logs)) == set()
    for log in logs:
        for index in [index for index, record in log.log.records.items()
                      if record.batch is not None and record.batch.base_offset > 2]:
            del log.log.records[index]
    assert "A3" in line.ids(replicas=cluster(*logs))


def test_a_partition_of_which_compaction_left_nothing_ends_where_the_checkpoints_say():
    line = deleting()
    line.offsets(5, final=True)
    number = incarnation_of(KEY)
    logs = [shortened_log(5).compact(8) for _ in range(3)]
    for log in logs:
        log.log.records.clear()
        log.log.partitions = {number: next(iter(log.log.partitions.values()))}
    assert line.ids(replicas=cluster(*logs)) == set()
    for log in logs:
        log.log.partitions = {number: log.log.partitions[number]._replace(next_offset=4)}
    assert line.ids(replicas=cluster(*logs)) == {"A3", "A17"}
