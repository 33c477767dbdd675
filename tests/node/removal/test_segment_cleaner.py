"""The cleaner of a node copies at its pace, within the space of the disk, and survives failures."""

from __future__ import annotations

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.errors import ConfigError
from multiraft.storage.cold.cleaner_pace import BURST_BYTES_MAX, CleanerPace
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.settings import StorageSettings
from multiraft.wire.errors import Code
from multiraft.wire.messages import NodeStatus
from multiraft.wire.nodes import PAUSE, REQUESTS, RESUME, ControlCleaner
from multiraft.wire.schema import Malformed
from node.config import parse
from node.errors import DiskFailed
from node.removal import segment_cleaner
from node.removal.segment_cleaner import RETRY_S, SegmentCleaner
from tests.node.harness import Client, in_trio, make_node, one_node_table, running, serving
from tests.storage.cold.test_cleaner import COLD, RECORDS, cold_files, places, worked
from tests.storage.test_raft_start import GROUP, checkpoints
from tests.storage.test_segment_removal import check, compacted, names, remove, starts
from tests.storage.world import release


def run(awaitable) -> None:
    """Run a coroutine whose awaited functions return at once."""
    with pytest.raises(StopIteration):
        awaitable.send(None)


class Parts:
    """A store that has records to copy, its disk's guard, and the clock and reports of a cleaner.
    """

    def __init__(self, pace: int = 0, is_short: bool = True):
        self.filesystem = SimulatedFilesystem()
        self.store = compacted(self.filesystem)
        checkpoints(self.store, 1)
        self.now_s = 100.0
        self.slept: list[float] = []
        self.wakes = iter(())
        self.turns = 0
        self.full, self.free, self.low_bytes, self.reserved = is_short, 1 << 30, 1 << 20, 1 << 20
        self.released = 0
        self.report: list[tuple] = []
        self.cleaner = SegmentCleaner(
            self.store, self._run, self._turn, lambda: self.now_s, self._sleep_until,
            CleanerPace(pace or 1 << 40), self, self)

    async def _run(self, call) -> None:
        call()

    async def _turn(self, _rows: int) -> None:
        self.turns += 1

    async def _sleep_until(self, due_s: float) -> None:
        assert due_s > self.now_s
        self.slept.append(due_s - self.now_s)
        self.now_s = due_s
        next(self.wakes, None)

    def release_reserve(self) -> bool:
        self.released += 1
        self.reserved = 0
        return True

    def copied(self, *figures: int) -> None:
        self.report.append(("copied", *figures))

    def failed(self, why: str) -> None:
        self.report.append(("failed", why))

    def damaged(self, error) -> None:
        self.report.append(("damaged", error.group, error.index))

    def clean(self) -> None:
        run(self.cleaner.clean_due())


def test_records_are_copied_and_their_segments_go():
    parts = Parts()
    before = names(parts.filesystem)
    parts.clean()
    assert parts.report == [("copied", 3, len(RECORDS), parts.cleaner.copied_bytes)]
    assert parts.cleaner.copied_segments == 3 and parts.cleaner.copied_bytes > 500
    assert parts.store.unnamed_bytes > 0, "a checkpoint is worth it"
    for _ in range(3):
        checkpoints(parts.store)
        parts.clean()
        remove(parts.store)
    assert all(map(is_cold, places(parts.store).values()))
    assert names(parts.filesystem) == starts(parts.store) == before[5:]
    check(parts.store)
    assert not parts.store.unnamed_bytes and len(parts.report) == 1


def test_records_that_index_files_answer_are_copied_as_well():
    parts = Parts()
    assert release(parts.store)
    worked(parts.store)
    # Few entries have so many hard states between them that the mean says little.
    parts.store.cleaner._unsurveyed.update(dict.fromkeys(
        each.start for each in parts.store.cleaner._facts))
    parts.clean()
    assert parts.report == [("copied", 3, len(RECORDS), parts.cleaner.copied_bytes)]
    for _ in range(3):
        checkpoints(parts.store)
        parts.clean()
        remove(parts.store)
    assert all(map(is_cold, places(parts.store).values())) and len(places(parts.store)) == 4
    check(parts.store)


def test_an_index_file_that_the_disk_cannot_read_ends_the_node():
    parts = Parts()
    assert release(parts.store)
    made = parts.store.cleaner.surveys(parts.store.cleaner.choose(True)) or [None]
    assert made == [None], "nothing was examined"
    original = parts.store.cleaner.surveys

    def failing(sources):
        jobs = original(sources)

        def read() -> None:
            raise OSError(5, "Input/output error")

        for job in jobs:
            job.read = read
        return jobs

    parts.store.cleaner.surveys = failing
    with pytest.raises(DiskFailed, match="index file could not be read"):
        parts.cleaner.clean_due().send(None)


def test_nothing_is_copied_while_there_is_little_to_free():
    parts = Parts(is_short=False)
    parts.clean()
    assert not parts.report and not cold_files(parts.filesystem)


def test_steps_keep_the_pace():
    parts = Parts(pace=100)
    parts.clean()
    assert max(parts.slept) <= segment_cleaner.WORK_S
    assert sum(parts.slept) >= (parts.cleaner.copied_bytes * 2 - 1000) / 100 > 0


def test_a_paused_cleaner_works_but_copies_nothing():
    parts = Parts()
    parts.cleaner.pace.pause()
    parts.clean()
    assert not parts.report and not cold_files(parts.filesystem)
    assert parts.store.cleaner.segment_bytes
    parts.cleaner.pace.resume()
    parts.clean()
    assert parts.report


def test_a_pause_holds_a_copy_between_two_steps():
    parts = Parts(pace=100)

    def wakes():
        yield
        assert parts.cleaner.copying is not None
        parts.cleaner.pace.pause()
        for _ in range(5):
            copied = parts.cleaner.copying.bytes
            yield
            assert parts.cleaner.copying.bytes == copied
        parts.cleaner.pace.resume(1 << 40)
        while True:
            yield

    parts.wakes = wakes()
    parts.clean()
    assert parts.report and parts.cleaner.copying is None


@pytest.mark.parametrize("pace, is_shared", [(1 << 40, True), (100, False)])
def test_steps_share_a_call_of_a_thread_as_far_as_the_pace_goes(pace, is_shared):
    parts = Parts(pace=pace)
    sizes = []
    original = parts.cleaner._run_blocking

    async def run_blocking(call):
        job = parts.cleaner.copying
        before = job.bytes if job is not None else 0
        await original(call)
        if job is not None:
            sizes.append(job.bytes - before)

    parts.cleaner._run_blocking = run_blocking
    parts.clean()
    assert parts.report[0][0] == "copied"
    assert len(sizes) == 1 if is_shared else len(sizes) > 4


def test_a_burst_of_steps_ends_with_its_bytes_or_a_pause():
    parts = Parts()
    sizes = []

    class Job:
        bytes, is_done, pauses = 0, False, False

        def step(self) -> None:
            self.bytes += 1 << 20
            parts.cleaner.pace.is_paused = self.pauses

    for pauses in (False, True):
        job = Job()
        job.pauses = pauses
        with pytest.raises(StopIteration) as ended:
            parts.cleaner._steps(job).send(None)
        sizes.append(ended.value.value)
        assert job.bytes == sizes[-1]
    assert sizes == [BURST_BYTES_MAX, 1 << 20]


def test_a_full_disk_gives_its_reserve_only_for_a_gain():
    parts = Parts()
    parts.free = 0
    parts.clean()
    assert parts.released == 1 and len(parts.report) == 1
    checkpoints(parts.store, 1)
    parts.clean()
    assert len(parts.report) == 1, "the sources of the first have to go before"
    parts = Parts()
    parts.free = parts.reserved = 0
    parts.clean()
    assert not parts.released and not parts.report


def test_a_copy_that_finds_no_space_is_tried_again_later():
    parts = Parts()
    parts.filesystem.faults.capacity_bytes = parts.filesystem.faults.used_bytes
    parts.clean()
    assert parts.report[0][0] == "failed" and "no space" in parts.report[0][1]
    assert not cold_files(parts.filesystem)
    parts.filesystem.faults.capacity_bytes = 1 << 60
    parts.clean()
    assert len(parts.report) == 1
    parts.now_s += RETRY_S
    parts.clean()
    assert parts.report[1][0] == "copied"
    check(parts.store)


def test_any_other_error_of_the_disk_ends_the_node():
    parts = Parts()
    job = parts.store.cleaner
    original = job.copy_job

    def failing(*sources):
        made = original(*sources)

        def step() -> None:
            raise OSError(5, "Input/output error")

        made.step = step
        return made

    job.copy_job = failing
    with pytest.raises(DiskFailed, match="could not be copied"):
        parts.cleaner.clean_due().send(None)


def test_damage_is_reported_and_the_rest_copied():
    parts = Parts()
    place = parts.store.table.logs[GROUP].locate(6)
    segment = parts.store.table.journal.segment_of(place.position)
    parts.filesystem.flip(segment.path, place.position - segment.start + 70, 1)
    parts.clean()
    assert parts.report[0] == ("damaged", GROUP, 6)
    assert parts.report[1][:3] == ("copied", 3, len(RECORDS) - 1)


def test_files_of_earlier_starts_go():
    parts = Parts()
    parts.store.close()
    parts.filesystem.create(f"{COLD}/{9:020d}.cold").write([b"x"], 0, True)
    parts.filesystem.sync_directory(COLD)
    parts.store.table.journal.cold.find_files(parts.filesystem)
    parts.cleaner.pace.pause()
    parts.clean()
    assert not cold_files(parts.filesystem)


# ---- a node --------------------------------------------------------------------------------------


@in_trio
async def test_the_cleaner_is_controlled_over_the_wire_at_the_node_that_is_named(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        async def ask(*fields):
            return (await client.ask(ControlCleaner(*fields))).reply

        async def status() -> dict:
            return (await client.ask(NodeStatus())).reply.status

        pace = node.config.storage.cleaner_bytes_per_second
        assert await ask(1, PAUSE) == (True, pace)
        assert (await status())["cleaner_paused"] == 1
        assert await ask(1, RESUME, 1 << 20) == (False, 1 << 20)
        found = await status()
        assert (found["cleaner_paused"], found["cleaner_bytes_per_second"]) == (0, 1 << 20)
        assert (await ask(1, PAUSE), await ask(1, RESUME)) == ((True, 1 << 20), (False, 1 << 20))
        for request, code in ((ControlCleaner(2, PAUSE), Code.UNKNOWN_NODE),
                              (ControlCleaner(1, RESUME, 65_535), Code.LIMIT_EXCEEDED)):
            assert (await client.ask(request)).code == code, request


@in_trio
async def test_a_node_without_a_pace_stays_paused_until_one_is_named(tmp_path):
    table = one_node_table()
    table["storage"] = {**table.get("storage", {}), "cleaner_bytes_per_second": 0}
    async with running(make_node(parse(table, tmp_path))) as node:
        async with await Client.open(node) as client:
            assert (await client.ask(NodeStatus())).reply.status["cleaner_paused"] == 1
            refused = await client.ask(ControlCleaner(1, RESUME))
            assert refused.code == Code.INVALID_REQUEST
            resumed = (await client.ask(ControlCleaner(1, RESUME, 1 << 20))).reply
            assert resumed == (False, 1 << 20)


@pytest.mark.parametrize("fields", [
    {"node": 1}, {"node": 1, "action": "stop"}, {"node": -1, "action": PAUSE},
    {"node": 1, "action": RESUME, "bytes_per_second": -1}, {"action": PAUSE}])
def test_a_request_that_is_none_is_refused_by_its_fields(fields):
    with pytest.raises(Malformed):
        REQUESTS["control_cleaner"].read(fields)


def test_a_negative_rate_is_refused():
    with pytest.raises(ConfigError, match="cleaner_bytes_per_second"):
        StorageSettings(cleaner_bytes_per_second=-1).validate()
