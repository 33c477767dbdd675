"""Reports of `consume` about waits, records left unread, and batches that cannot be decoded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from admin_cli.failures import ExitCode
from admin_cli.records import waiting
from multiraft.client.blocking import UnreadableBatch, Wait
from multiraft.errors import CorruptBatch
from multiraft.wire.sinks import TransactionRef
from tests.admin_cli.fakes import FakeClient

BLOCKED = Wait(
    "t",
    0,
    3,
    7,
    12_000,
    "staged by transaction 4 of sink 1, 'delays', whose batch 9 has been open for 12 s",
    TransactionRef(1, 4),
)


@pytest.fixture
def seven(cluster) -> None:
    """A topic "t" with seven records."""
    cluster.topics["t"] = [[(b"k", b"v%d" % number) for number in range(7)]]


def test_a_read_that_stops_before_the_end_says_where_and_why(run, seven, cluster):
    cluster.unread = (BLOCKED, BLOCKED._replace(partition=1))
    done = run("consume", "t")
    assert done.exit_code == 6
    assert done.stdout.count("\n") == 7, "what was read is written"
    for words in ("t/0 was read to offset 3, its end is 7", "transaction 4 of sink 1, 'delays'",
                  "1 other partition", "sink blocked t", "--isolation read_uncommitted"):
        assert words in done.stderr
    assert run("consume", "t", "--count", "2").exit_code == 0, "it was not to read to the end"


def test_a_wait_is_said_after_a_while_and_again_after_longer(run, seven, cluster, monkeypatch):
    monkeypatch.setattr(waiting, "now_ms", lambda: cluster.now_ms)
    cluster.waiting = [BLOCKED] * 3
    done = run("consume", "t")
    assert done.exit_code == 0 and done.stdout.count("\n") == 7
    assert done.stderr.count("waiting for t/0 at offset 3: staged by transaction 4") == 3
    assert cluster.now_ms == 5_000 + 10_000 + 20_000


UNREADABLE = Wait("t", 0, -1, -1, 3_000, "its leader is not known")


@pytest.mark.parametrize("asked_ms", [0, 2_900])
def test_a_reader_gives_up_after_the_time_that_was_given_and_says_that_time(
        run, seven, cluster, monkeypatch, asked_ms):
    """Questions about offsets may have used most of the time."""
    def describe_topic(self, name):
        cluster.now_ms += asked_ms
        return given(self, name)

    given = FakeClient.describe_topic
    monkeypatch.setattr(FakeClient, "describe_topic", describe_topic)
    monkeypatch.setattr(waiting, "now_ms", lambda: cluster.now_ms)
    for flags in ([], ["--quiet"], ["--follow"]):
        cluster.now_ms, cluster.waiting = 0, [UNREADABLE] * 3
        done = run("consume", "t", "--timeout", "3s", *flags)
        assert done.exit_code == ExitCode.UNREACHABLE
        assert "Error: t/0: not read for 3 s: its leader is not known.\n" in done.stderr
        assert cluster.now_ms == 3_000
    cluster.up, cluster.now_ms, cluster.waiting = {1}, 0, [UNREADABLE] * 3
    done = run("consume", "t", "--timeout", "3s")
    assert done.exit_code == ExitCode.UNREACHABLE
    what, reason, *_ = done.stderr.partition("Error: ")[2].splitlines()
    assert what == "t/0 was not read for 3 s."
    assert reason.startswith("  group 1, which holds t/0, has no leader: 1 of its 3 members is up")


def test_a_failure_of_a_moment_does_not_end_a_reader(run, seven, cluster, monkeypatch):
    monkeypatch.setattr(waiting, "now_ms", lambda: cluster.now_ms)
    cluster.waiting = [UNREADABLE._replace(waiting_ms=1_000)]
    done = run("consume", "t", "--timeout", "3s")
    assert done.exit_code == 0 and done.stdout.count("\n") == 7


def test_a_reader_that_waits_for_a_transaction_only_is_not_ended_early(run, seven, cluster,
                                                                       monkeypatch):
    monkeypatch.setattr(waiting, "now_ms", lambda: cluster.now_ms)
    cluster.waiting = [BLOCKED] * 3
    done = run("consume", "t", "--timeout", "3s")
    assert done.exit_code == 0 and done.stdout.count("\n") == 7
    assert cluster.consumed["unavailable_ms"] == 3_000


def test_offsets_that_no_leader_tells_are_given_up_after_the_time_that_was_given(
        run, seven, cluster, monkeypatch):
    def describe_topic(self, name):
        cluster.now_ms += 700
        described = given(self, name)
        for row in described.partitions:
            row.end_offset = None
        return described

    given = FakeClient.describe_topic
    monkeypatch.setattr(FakeClient, "describe_topic", describe_topic)
    monkeypatch.setattr(waiting, "now_ms", lambda: cluster.now_ms)
    done = run("consume", "t", "-o", "-1", "--timeout", "1m30s")
    assert done.exit_code == ExitCode.UNREACHABLE
    assert "Error: no leader has told the offsets of t/0 for 1 min 30 s.\n" in done.stderr


def test_what_has_not_waited_long_is_not_said(run, seven, cluster, monkeypatch):
    monkeypatch.setattr(waiting, "now_ms", lambda: cluster.now_ms)
    cluster.waiting = [BLOCKED._replace(waiting_ms=4_700)]
    assert "waiting" not in run("consume", "t").stderr
    cluster.waiting, cluster.now_ms = [BLOCKED._replace(waiting_ms=4_700), BLOCKED], 0
    assert "waiting" in run("consume", "t").stderr
    assert cluster.now_ms == 5_300, "as soon as it has waited so long"


def test_a_batch_that_cannot_be_opened_ends_it_by_name_or_is_left_out(run, seven, monkeypatch):
    def opened(self, topic, number, records, first):
        yield SimpleNamespace(
            topic="t", partition=0, base_offset=2, records=lambda: (_ for _ in ()).throw(
                UnreadableBatch("t", 0, 2, 4, CorruptBatch("incorrect header check"))))
        yield from given(self, topic, number, records, 5)

    given = FakeClient._batches
    monkeypatch.setattr(FakeClient, "_batches", opened)
    done = run("consume", "t")
    assert done.exit_code == 1 and done.stdout == ""
    assert "t/0: the batch at offset 2 to 4 cannot be read: incorrect header" in done.stderr
    assert "--partition 0 --from 5" in done.stderr and "--skip-unreadable" in done.stderr
    done = run("consume", "t", "--skip-unreadable")
    assert done.exit_code == 0 and done.stdout.count("\n") == 2
    assert "Skipped: t/0: the batch at offset 2 to 4" in done.stderr
