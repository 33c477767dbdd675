"""Pending appends: each is answered exactly once, and never with a definite refusal."""

from node.clients.pending_appends import PendingAppends, ProduceRequest


class Table:
    """A pending table whose answers are recorded."""

    def __init__(self):
        self.answers = []
        self.pending = PendingAppends(ambiguous=lambda why: ("ambiguous", why),
                                      acknowledged=lambda base: ("ok", base))

    def request(self, number, batches=1, deadline_ms=1000):
        request = ProduceRequest(number, lambda done: self.answers.append((number, done.results)),
                                 batches, deadline_ms)
        self.pending.open(request)
        return request


def test_commit_answers_in_index_order_and_only_what_it_covers():
    table = Table()
    for number in range(3):
        table.pending.add(7, 10 + number, "commit", table.request(number), 0, 100 + number)
    table.pending.committed(7, 11)
    assert table.answers == [(0, [("ok", 100)]), (1, [("ok", 101)])]
    table.pending.committed(7, 12)
    assert len(table.answers) == 3


def test_a_request_is_answered_when_its_last_batch_is():
    table = Table()
    request = table.request(1, batches=2)
    table.pending.add(1, 5, "commit", request, 0, 50)
    table.pending.add(2, 9, "commit", request, 1, 90)
    table.pending.committed(2, 9)
    assert table.answers == []
    table.pending.committed(1, 5)
    assert table.answers == [(1, [("ok", 50), ("ok", 90)])]


def test_a_lost_leadership_leaves_everything_of_the_group_ambiguous():
    table = Table()
    table.pending.add(1, 5, "commit", table.request(1), 0, 50)
    table.pending.add(1, 5, "leader", table.request(2), 0, 50)
    table.pending.add(2, 5, "commit", table.request(3), 0, 50)
    table.pending.lost(1)
    assert [number for number, _results in table.answers] == [1, 2]
    assert all(results[0][0] == "ambiguous" for _number, results in table.answers)
    table.pending.committed(1, 5)
    assert len(table.answers) == 2


def test_time_running_out_is_ambiguous_and_a_later_commit_changes_nothing():
    table = Table()
    table.pending.add(1, 5, "commit", table.request(1, deadline_ms=100), 0, 50)
    assert table.pending.earliest_ms == 100
    table.pending.expire(99)
    assert table.answers == []
    table.pending.expire(100)
    assert table.answers[0][1][0][0] == "ambiguous"
    table.pending.committed(1, 5)
    assert len(table.answers) == 1


def test_answered_requests_do_not_gather_behind_one_that_is_stuck():
    table = Table()
    table.pending.add(1, 5, "commit", table.request(0, deadline_ms=10), 0, 50)
    for number in range(1, 5000):
        table.request(number, deadline_ms=60_000).complete(0, "refused")
        table.pending.expire(1)
    assert len(table.answers) == 4999
    assert table.pending.deadlines_kept < 1000
    table.pending.expire(10)
    assert table.answers[-1][0] == 0


def test_acks_leader_waits_for_the_durable_index_only():
    table = Table()
    table.pending.add(1, 5, "leader", table.request(1), 0, 50)
    assert table.pending.groups_waiting_for_durable() == (1,)
    table.pending.committed(1, 5)
    assert table.answers == []
    table.pending.durable(1, 5)
    assert table.answers == [(1, [("ok", 50)])]
    assert table.pending.groups_waiting_for_durable() == ()
