"""Reports of damaged batches: the node verifies its copy and believes no report."""

import errno
import os

import trio

from multiraft.storage.io_jobs import VerifyJob
from multiraft.wire.errors import Code
from multiraft.wire.messages import Fetch, FetchPart, ReportCorruption
from tests.node.harness import Client, in_trio, serving, until


def damage(directory, value: bytes) -> None:
    """Change ``value`` at its place in the journal."""
    [path] = [path for path in (directory / "data" / "lane-0").iterdir()
              if value in path.read_bytes()]
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), value.upper(), path.read_bytes().index(value))


@in_trio
async def test_a_false_complaint_changes_nothing(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"fine")
        assert not (await client.ask(ReportCorruption(topic, 0))).reply.damaged
        assert not (await client.ask(ReportCorruption(topic, 99))).reply.damaged, (
            "there is no such record"
        )
        assert (await client.ask(ReportCorruption(topic + 50, 0))).code == Code.UNKNOWN_PARTITION
        assert node.core.status.quarantined_count == 0
        assert (
            node.reads.corruption_reports.received,
            node.reads.corruption_reports.confirmed,
        ) == (3, 0)


@in_trio
async def test_a_complaint_finds_damage_below_a_copy_in_memory(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"tender")
        damage(tmp_path, b"tender")
        intact = await client.ask(Fetch((FetchPart(topic, 0, 1 << 20),)))
        assert b"tender" in bytes(intact.reply.payload), "memory has an intact copy"
        assert (await client.ask(ReportCorruption(topic, 0))).reply.damaged
        await until(lambda: node.core.status.quarantined_count == 1)
        assert (
            node.reads.corruption_reports.confirmed,
            node.reads.corruption_reports._at_work,
        ) == (1, 0)


@in_trio
async def test_a_report_that_cannot_be_verified_for_lack_of_descriptors_is_refused(
        tmp_path, monkeypatch):
    def exhausted(job):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"fine")
        with monkeypatch.context() as patched:
            patched.setattr(VerifyJob, "execute", exhausted)
            refused = await client.ask(ReportCorruption(topic, 0))
            assert (refused.code, "cannot open a file" in refused.error.text) == (
                Code.QUEUE_FULL, True)
        assert not (await client.ask(ReportCorruption(topic, 0))).reply.damaged
        assert node.reads.corruption_reports._at_work == 0


@in_trio
async def test_reports_at_a_time_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("node.clients.corruption_reports.REPORTS_MAX", 1)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"fine")
        go_on, read = trio.Event(), node.reads.background.read

        async def slow(plan):
            await go_on.wait()
            return await read(plan)

        node.reads.background.read = slow
        await client.begin(ReportCorruption(topic, 0))
        await client.begin(ReportCorruption(topic, 0))
        refused = await client.event()
        assert (refused.code, refused.error.limit, refused.error.value) == (Code.QUEUE_FULL, 1, 2)
        go_on.set()
        assert not (await client.event()).reply.damaged


@in_trio
async def test_a_quarantined_replica_serves_nothing_to_those_who_take_any(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one")
        group = node.metadata.directory.locate(topic).group
        waiting = Fetch((FetchPart(topic, 1, 1 << 20),), 1, 1 << 20, 20_000, "any")
        await client.begin(waiting)
        await until(lambda: node.reads.fetch_handler._deadlines, "the poll waits")
        node.core.repair.quarantine(group, "for this test")
        node.request_round()
        assert (await client.event()).reply.results[0].code == Code.QUARANTINED
        again = await client.ask(Fetch((FetchPart(topic, 0, 1 << 20),), replica="any"))
        assert again.reply.results[0].code == Code.QUARANTINED
