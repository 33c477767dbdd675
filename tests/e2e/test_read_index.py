"""A leader that has been replaced and cannot know it gives no stale answer (ReadIndex).

Packets between it and the others are lost, and its liveness thread is frozen, so that it does not
learn that its leases have expired: in its own view it leads, while another node leads and
acknowledges.  Only the confirmation by a majority keeps it from answering from its own state;
without it, these tests fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from chaos.backends.backend import PARTITION, ClusterSpec, all_links
from chaos.backends.processes import ProcessBackend
from multiraft.client import Record, blocking
from multiraft.wire import Code
from multiraft.wire.messages import (
    LATEST,
    TIMESTAMP,
    Fetch,
    FetchPart,
    GroupDescribe,
    ListOffsets,
    OffsetQuery,
)
from tests import needs
from tests.e2e import freezing, raw
from tests.e2e.world import wait_for

TAKES_THE_MACHINE = True

TOPIC = "orders"
#: Records that all nodes know, and those that only the new leader's majority has.
BEFORE, SINCE = 5, 7


class Deposed(NamedTuple):
    """The old leader, which the others have replaced."""

    session: raw.Session
    group: int
    incarnation: int

    def believes(self) -> bool:
        """True if the old leader still takes itself for the leader."""
        described = self.session.reply(GroupDescribe(self.group))
        return described.role == "leader" and described.committed_in_term

    def asked(self, position: str, timestamp_ms: int = -1, linearizable: bool = True):
        """Return its answer about an offset."""
        query = OffsetQuery(self.incarnation, position, timestamp_ms)
        return self.session.reply(ListOffsets((query,), linearizable)).results[0]


@pytest.fixture(scope="module")
def deposed(tmp_path_factory) -> Iterator[Deposed]:
    """Yield a leader that was isolated and replaced, with its liveness thread frozen."""
    missing = freezing.why_not()
    if missing:
        pytest.skip(f"{needs.SKIPPED}a leader cannot be held here: {missing}")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            ProcessBackend(tmp_path_factory.mktemp("cluster"), ClusterSpec(nodes=3, groups=2)))
        needs.faults(cluster, PARTITION)
        cluster.up()
        incarnation, group, old = _filled(cluster.servers())
        session = stack.enter_context(raw.Session(cluster.address(old)))
        stack.enter_context(freezing.frozen(cluster.pid(old), "liveness"))
        others = [node for node in cluster.nodes() if node != old]
        cluster.cut(all_links([old], others))
        with raw.Session(cluster.address(others[0])) as watching:
            new = wait_for(lambda: _leader(watching, old), "somebody else leads")
        with raw.Session(cluster.address(new)) as leading:
            wait_for(lambda: leading.produce(
                incarnation, raw.batch(*[b"since"] * SINCE)).code == Code.OK,
                "the new leader acknowledges")
        yield Deposed(session, group, incarnation)


def _filled(servers: Sequence[str]) -> tuple[int, int, int]:
    """Create and fill the topic's partition; return incarnation, group, leader."""
    with blocking.Client(servers) as client:
        client.create_topic(TOPIC, 1)
        with client.producer() as producer:
            for _ in range(BEFORE):
                producer.send(Record(TOPIC, b"before")).wait()
    with raw.Session(servers[0]) as session:
        found = wait_for(lambda: _known(session), "the leader is known")
    return found.incarnation, found.group, found.leader


def _known(session: raw.Session):
    found = session.partition(TOPIC)
    return found if found.leader else None


def _leader(session: raw.Session, old: int) -> int:
    """Return the leader that replaced ``old``; 0 = none yet."""
    leader = session.partition(TOPIC).leader
    return 0 if leader == old else leader


def test_it_believes_to_lead_and_knows_of_nothing_new(deposed):
    assert deposed.believes()
    known = deposed.asked(LATEST, linearizable=False)
    assert (known.code, known.offset) == (Code.OK, BEFORE), "what it would answer"


def test_it_names_no_end_and_no_time_for_certain(deposed):
    for position, timestamp_ms in ((LATEST, -1), (TIMESTAMP, 1 << 42)):
        answer = deposed.asked(position, timestamp_ms)
        assert deposed.believes(), "it was not told meanwhile"
        assert answer.code == Code.OFFSET_NOT_AVAILABLE, answer


def test_it_calls_nothing_out_of_range(deposed):
    beyond = FetchPart(deposed.incarnation, BEFORE + 1, 1 << 20)
    answer = deposed.session.reply(Fetch((beyond,))).results[0]
    assert deposed.believes(), "it was not told meanwhile"
    assert answer.code == Code.OFFSET_NOT_AVAILABLE, "the record is there, at the new leader"
