"""Steps before the final reads: open plans are ended, a replica must serve the records that it
holds and not those that a move removes from it, and a consumer reaches the end.
"""

from __future__ import annotations

import contextlib
import io
from types import SimpleNamespace

import trio
import trio.testing

from chaos.history import HistoryWriter
from chaos.run import final_reads
from chaos.run.open_plans import BOUND_S, RETRY_S, end_plan
from chaos.workloads.reads import ReadOutcome
from chaos.workloads.recorder import Recorder
from chaos.workloads.workload_context import PartitionRef
from multiraft.wire.errors import NotLeader
from multiraft.wire.plans import CANCEL, ControlPlan, PlanLimits, PlanStatus, PlanStatusReply


def status(state: str, plan_id: str = "p1", after: str = "") -> PlanStatusReply:
    return PlanStatusReply(plan_id, "all", state, "commits are slow", 0, 0, PlanLimits(1), 1, 0, 0,
                           0, -1, (), (), (), after)


class Cluster:
    """Cluster that gives these answers in order; the last one again and again."""

    def __init__(self, *answers: PlanStatusReply | Exception):
        self.answers = list(answers)
        self.asked: list = []
        self.recorder = SimpleNamespace(now_us=lambda: 7)

    @contextlib.asynccontextmanager
    async def client(self):
        yield self

    async def plan_request(self, request):
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        if not isinstance(request, PlanStatus):
            return status("cancelling")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ended(cluster: Cluster) -> list:
    return trio.run(end_plan, cluster, clock=trio.testing.MockClock(autojump_threshold=0))


def test_without_a_plan_nothing_is_cancelled():
    cluster = Cluster(status("none", ""))
    assert ended(cluster) == []
    assert cluster.asked == [PlanStatus()]


def test_a_paused_plan_is_cancelled_once_and_waited_for_and_the_one_behind_it_too():
    cluster = Cluster(NotLeader("not yet"), status("paused"), status("cancelling"),
                      status("cancelled", after="p2"), status("running", "p2"),
                      status("cancelled", "p2"))
    assert ended(cluster) == []
    controls = [request for request in cluster.asked if isinstance(request, ControlPlan)]
    assert controls == [ControlPlan(CANCEL, "p1"), ControlPlan(CANCEL, "p2")]


def test_a_plan_that_does_not_end_is_an_anomaly():
    anomaly, = ended(Cluster(status("cancelling")))
    assert (anomaly.id, anomaly.name, anomaly.time_us) == ("A28", "plan-goes-on", 7)
    assert "p1 is cancelling: commits are slow" in anomaly.text


# ---- what a replica owes -----------------------------------------------------------------------

PLACE = PartitionRef("t", 5, 0, 100, 1)
PART = final_reads.ReplicaRange(3, 0, 350)


def owed(monkeypatch, parts, *answers: ReadOutcome) -> tuple[str, int]:
    """Return what node 3 fails to serve, and the number of requests."""
    left, asked = list(answers), []

    async def read(*_arguments, **_options) -> ReadOutcome:
        await trio.lowlevel.checkpoint()
        asked.append(None)
        return left.pop(0) if len(left) > 1 else left[0]

    async def offsets(*_arguments) -> None:
        """Return None: the node does not answer."""
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(final_reads.reads, "read", read)
    monkeypatch.setattr(final_reads.reads, "offsets", offsets)
    context = SimpleNamespace(recorder=SimpleNamespace(process=lambda: None))
    said = trio.run(final_reads.read_replica, context, PLACE, PART, parts,
                    clock=trio.testing.MockClock(autojump_threshold=0))
    return said, len(asked)


def test_a_replica_that_has_everything_owes_nothing(monkeypatch):
    answers = ReadOutcome(100, 350, ""), ReadOutcome(350, 350, "")
    assert owed(monkeypatch, lambda: [PART], *answers) == ("", 2)


def test_a_replica_that_stays_behind_owes_what_it_said_last(monkeypatch):
    said, asked = owed(monkeypatch, lambda: [PART], ReadOutcome(0, 0, ""))
    assert said == ("node 3 serves it up to offset 0, and its end there is 350; it says that 0 is "
                    "its end")
    assert asked >= BOUND_S / RETRY_S / 2
    said, _ = owed(monkeypatch, lambda: [PART], ReadOutcome(0, -1, "NotLeader: elsewhere"))
    assert said.endswith("; NotLeader: elsewhere")


def test_a_replica_that_is_moved_away_meanwhile_owes_nothing(monkeypatch):
    looks = iter([[PART], [PART], [final_reads.ReplicaRange(4, 0, 350)]])
    assert owed(monkeypatch, lambda: next(looks), ReadOutcome(0, 0, "")) == ("", 3)


def test_an_empty_partition_is_asked_for_once(monkeypatch):
    monkeypatch.setattr("tests.chaos.runs.test_open_plans.PART", final_reads.ReplicaRange(3, 0, 0))
    assert owed(monkeypatch, lambda: [PART], ReadOutcome(0, 0, "")) == ("", 1)


# ---- what a consumer comes to --------------------------------------------------------------------

END = 3


class Consumer:
    """A consumer that is given these values, or an error."""

    def __init__(self, offset: int, given: list[int] | Exception):
        self.offset, self.given = offset, given

    async def __aiter__(self):
        await trio.lowlevel.checkpoint()
        if isinstance(self.given, Exception):
            raise self.given
        if self.given:
            yield self.offset, self.given

    def positions(self) -> dict[int, int]:
        return {PLACE.partition: self.offset}


class Consumed:
    """A client whose consumers are given these values at each call; the last ones again and
    again."""

    def __init__(self, *given: list[int] | Exception):
        self.given, self.positions = list(given), []
        self.recorder, self.run = Recorder(HistoryWriter(io.StringIO())), 77

    @contextlib.asynccontextmanager
    async def client(self):
        yield self

    def consume(self, _topic, _partition, offset, until_end, offset_reset):
        assert until_end and offset_reset == "earliest"
        self.positions.append(offset)
        given = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        return Consumer(offset, given)


def consumed(monkeypatch, *given: list[int] | Exception) -> tuple[list, Consumed]:
    def runs_of(_run, _key, batches, runs) -> None:
        runs.extend([offset, values] for offset, values in batches)

    monkeypatch.setattr(final_reads, "runs_of", runs_of)
    context = Consumed(*given)
    anomalies = trio.run(final_reads.consume, context, PLACE, 0, END,
                         clock=trio.testing.MockClock(autojump_threshold=0))
    return anomalies, context


def test_a_consumer_that_is_told_of_an_end_too_early_asks_again(monkeypatch):
    anomalies, context = consumed(monkeypatch, [7], [], [8, 9])
    assert anomalies == [] and context.positions == [0, 1, 1]
    assert context.recorder.counts["poll", "ok"] == 1


def test_a_consumer_that_stands_still_is_an_anomaly(monkeypatch):
    (anomaly,), context = consumed(monkeypatch, [7], [])
    assert (anomaly.id, anomaly.name) == ("A28", "replica-behind")
    assert "no consumer comes to its end, 3; its position is 1" in anomaly.text
    assert len(context.positions) > BOUND_S / RETRY_S / 2


def test_a_consumer_that_is_refused_is_an_anomaly(monkeypatch):
    (anomaly,), _ = consumed(monkeypatch, [7], NotLeader("never"))
    assert "no consumer comes to its end, 3; NotLeader: never" in anomaly.text
