"""Transactions that sinks left open are aborted before the final reads."""

from __future__ import annotations

import contextlib
import io

import trio
import trio.testing

from chaos.history import OK, HistoryWriter
from chaos.run.open_transactions import end_transactions
from chaos.workloads.recorder import Recorder
from multiraft.wire.errors import NotLeader
from multiraft.wire.sinks import AbortRun, AbortRunReply, SinkList, SinkListReply, SinkRow


class Cluster:
    """A ledger with these sinks, which shows one in each answer; ``refusals`` come first."""

    def __init__(self, *sinks: SinkRow, refusals: int = 0, deaf: bool = False):
        self.sinks = list(sinks)
        self.refusals = refusals
        self.deaf = deaf  # an aborted run stays open
        self.aborted: list[AbortRun] = []
        self.recorder = Recorder(HistoryWriter(io.StringIO()), clock_ns=lambda: 7_000)

    @contextlib.asynccontextmanager
    async def client(self):
        yield self

    async def catch_up(self) -> None:
        await trio.lowlevel.checkpoint()

    async def sink_request(self, request):
        await trio.lowlevel.checkpoint()
        if self.refusals:
            self.refusals -= 1
            raise NotLeader("not yet")
        if isinstance(request, SinkList):
            following = self.sinks[request.after:]
            return SinkListReply(tuple(following[:1]), len(following) > 1)
        self.aborted.append(request)
        if not self.deaf:
            row = self.sinks[request.sink - 1]
            self.sinks[request.sink - 1] = row._replace(open_batch=-1)
        return AbortRunReply(False)


def sink(number: int, open_batch: int = -1) -> SinkRow:
    return SinkRow(number, f"s{number}", 3, 5, 6, open_batch)


def ended(cluster: Cluster) -> list:
    return trio.run(end_transactions, cluster, clock=trio.testing.MockClock(autojump_threshold=0))


def test_without_an_open_run_nothing_is_given_up():
    cluster = Cluster(sink(1), sink(2))
    assert ended(cluster) == []
    assert cluster.aborted == []


def test_every_open_run_is_given_up_and_the_history_has_it():
    cluster = Cluster(sink(1, 4), sink(2), sink(3, 9), refusals=1)
    assert ended(cluster) == []
    assert cluster.aborted == [AbortRun(1, 6), AbortRun(3, 6)]
    assert cluster.recorder.counts["abort_run", OK] == 2


def test_a_run_that_stays_open_is_an_anomaly():
    anomaly, = ended(Cluster(sink(1, 4), deaf=True))
    assert (anomaly.id, anomaly.name, anomaly.time_us) == ("A28", "run-stays-open", 0)
    assert anomaly.text.endswith("run 6 of s1 is open")
