"""A cold segment has exactly the records that were copied, verified, in bounded steps."""

from __future__ import annotations

import errno
import itertools
import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFile, SimulatedFilesystem
from multiraft import core
from multiraft.storage.atomic_file import remove_unfinished
from multiraft.storage.cold import copy_job as copying
from multiraft.storage.cold.cold_segment import HEADER_BYTES, cold_index_path, cold_path
from multiraft.storage.cold.contents import read_contents
from multiraft.storage.cold.copy_job import CopyJob, CopySource
from multiraft.storage.errors import CorruptFile
from multiraft.types import Entry
from tests.storage.cold.files import (
    CLUSTER,
    DIRECTORY,
    NODE,
    Source,
    cold_file,
    copy_job,
    header_of,
    run,
    runs_of,
    some_entries,
    written_source,
)

PATH = cold_path(DIRECTORY, 7)


def entries_of(filesystem, job) -> list[Entry]:
    """The entries at the places that the contents of a cold segment name, in the file's order."""
    data = filesystem.image(PATH)
    places = sorted((byte, size) for run_ in job.contents.runs.values()
                    for byte, size in zip(run_.bytes, run_.sizes))
    assert places[0][0] == HEADER_BYTES
    assert all(a + size == b for (a, size), (b, _) in zip(places, places[1:]))
    assert sum(places[-1]) == len(data) == job.written.length
    return [core.parse_entries(memoryview(data)[byte:byte + size])[0] for byte, size in places]


def test_records_are_grouped_by_group_and_partition():
    filesystem, entries = SimulatedFilesystem(), some_entries()
    job = cold_file(filesystem, entries)
    assert entries_of(filesystem, job) == sorted(
        entries, key=lambda each: (each.group, each.partition, each.index))
    assert not job.damaged and job.contents.records == len(entries)
    assert filesystem.list(DIRECTORY) == [f"{7:020d}.cold", f"{7:020d}.cold-index"]
    for group, run_ in job.contents.runs.items():
        own = [each for each in entries if each.group == group]
        assert list(run_.indexes) == [each.index for each in own]
        for partition, batches in run_.partitions.items():
            batches._check()
            assert [batches.batch(slot)[::2] for slot in range(len(batches))] == [
                (each.base_offset, each.index) for each in own if each.partition == partition]


def test_a_step_is_bounded(monkeypatch):
    monkeypatch.setattr(copying, "STEP_BYTES", 256)
    monkeypatch.setattr(copying, "GAP_BYTES_MAX", 128)
    filesystem, entries = SimulatedFilesystem(), some_entries(60)
    records = written_source(filesystem, entries, Source())
    wanted = records[::3]
    largest = max(each.size for each in records)
    job = copy_job(filesystem, wanted)
    steps = []
    while not job.is_done:
        before = job.bytes
        job.step()
        steps.append(job.bytes - before)
    assert job.bytes_copied == job.bytes_to_copy
    *copies, _index, _name, _sync = steps
    assert max(copies) <= 256 + largest and len(steps) > 20
    assert entries_of(filesystem, job) == sorted(
        entries[::3], key=lambda each: (each.group, each.partition, each.index))
    assert job.bytes == sum(steps)


def test_a_larger_entry_than_a_step_is_copied(monkeypatch):
    monkeypatch.setattr(copying, "STEP_BYTES", 64)
    filesystem = SimulatedFilesystem()
    assert cold_file(filesystem).contents.records == 24


def test_the_system_reads_each_span_once_before_it_is_asked_for(monkeypatch):
    """But for the first one of each source, whose file is opened then."""
    monkeypatch.setattr(copying, "STEP_BYTES", 256)
    monkeypatch.setattr(copying, "AHEAD_BYTES", 1024)
    filesystem, entries = SimulatedFilesystem(), some_entries(60)
    sources = [Source(), Source("/node/lane-0/second", 1 << 40)]
    runs = [CopySource(source, runs_of(written_source(filesystem, half, source)))
            for source, half in zip(sources, (entries[:30], entries[30:]), strict=True)]
    calls: list[tuple[str, str, int, int]] = []

    def spied(name):
        known = getattr(SimulatedFile, name)

        def spy(file, length, position):
            calls.append((name, file.path, position, length))
            return known(file, length, position)

        monkeypatch.setattr(SimulatedFile, name, spy)

    spied("read")
    spied("read_ahead")
    filesystem.make_directory(DIRECTORY)
    run(CopyJob(filesystem, DIRECTORY, header_of(), runs))
    reads = [each[1:] for each in calls if each[0] == "read" and each[1] in
             [source.path for source in sources]]
    ahead = [each[1:] for each in calls if each[0] == "read_ahead"]
    assert len(reads) > 10 and len(ahead) == len({*ahead})
    firsts = [next(each for each in reads if each[0] == source.path) for source in sources]
    assert {*ahead} == {*reads} - {*firsts}
    for each in ahead:
        assert calls.index(("read_ahead", *each)) < calls.index(("read", *each))


def test_a_damaged_record_stays_where_it_is():
    filesystem, entries = SimulatedFilesystem(), some_entries()
    records = written_source(filesystem, entries, Source())
    filesystem.flip(Source().path, records[4].position - Source().start + 70, 1)
    job = copy_job(filesystem, records)
    run(job)
    assert [(each.group, each.index) for each in job.damaged] == [records[4][2:5:2]]
    assert len(entries_of(filesystem, job)) == len(entries) - 1


@pytest.mark.parametrize("field", ["group", "incarnation", "index", "term"])
def test_only_the_record_that_is_asked_for_is_copied(field):
    filesystem, entries = SimulatedFilesystem(), some_entries()
    records = written_source(filesystem, entries, Source())
    other = getattr(records[3], field) + 1
    job = copy_job(filesystem, [*records[:3], records[3]._replace(**{field: other}), *records[4:]])
    run(job)
    assert len(job.damaged) == 1 and "is in its place" in job.damaged[0].why
    assert job.contents.records == len(entries) - 1


def test_a_source_that_was_removed_meanwhile_gives_nothing():
    filesystem = SimulatedFilesystem()
    source = Source()
    records = written_source(filesystem, some_entries(), source)
    job = copy_job(filesystem, records, source)
    filesystem.remove(source.path)
    with pytest.raises(FileNotFoundError):
        job.step()
    job.abandon()
    source.is_removed = True
    job = copy_job(filesystem, records, source)
    run(job)
    assert job.written is None and not job.damaged
    filesystem.create(source.path).write([b"the begin of a file that is cut off"], 0, True)
    job = copy_job(filesystem, records, source)
    run(job)
    assert job.written is None and not filesystem.list(DIRECTORY)


def test_a_file_that_the_disk_did_not_keep_is_not_used():
    filesystem = SimulatedFilesystem()
    job = copy_job(filesystem, written_source(filesystem, some_entries(), Source()))
    while job._phase is not copying._Phase.VERIFY:
        job.step()
    filesystem.sync_directory(DIRECTORY)
    filesystem.flip(PATH + ".new", 500, 1)
    with pytest.raises(CorruptFile):
        run(job)
    job.abandon()
    assert job.is_done and job.written is None and not filesystem.list(DIRECTORY)


def test_an_abandoned_job_leaves_nothing():
    for steps in range(12):
        filesystem = SimulatedFilesystem()
        job = copy_job(filesystem, written_source(filesystem, some_entries(), Source()))
        for _ in range(steps):
            job.step()
        job.abandon()
        assert not filesystem.list(DIRECTORY), steps


def test_power_loss_leaves_the_whole_segment_or_one_that_is_removed():
    """Nothing of it has its name before all of it is on the disk."""
    limit, finished, whole = 0, False, 0
    while not finished:
        filesystem = SimulatedFilesystem()
        job = copy_job(filesystem, written_source(filesystem, some_entries(), Source()))
        filesystem.operations_to_crash = limit
        try:
            run(job)
            finished = True
        except PowerLoss:
            finished = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        remove_unfinished(filesystem, DIRECTORY)
        left = filesystem.list(DIRECTORY)
        assert not [name for name in left if name.endswith(".new")]
        if f"{7:020d}.cold" in left:
            whole += 1
            filesystem.remove(cold_index_path(DIRECTORY, 7))
            data = filesystem.image(PATH)
            name = job.written or copying.ColdName(7, len(data), header_of().seed, 1 << 30)
            found = read_contents(filesystem, DIRECTORY, name, CLUSTER, NODE)
            assert found.contents.records == 24 and not found.lost and not found.unreadable
        limit += 1
    assert limit > 8 and whole


def test_a_full_disk_is_met_before_anything_is_written():
    filesystem = SimulatedFilesystem()
    records = written_source(filesystem, some_entries(), Source())
    job = copy_job(filesystem, records)
    filesystem.faults.capacity_bytes = filesystem.faults.used_bytes + 512
    with pytest.raises(OSError, match="no space"):
        run(job)
    job.abandon()
    assert not filesystem.list(DIRECTORY)


@pytest.mark.parametrize("method", ["open", "create", "read_disk", "rename", "sync_directory"])
def test_a_step_without_file_descriptors_is_repeated(method, monkeypatch):
    """Whichever call of a step fails, once: the step that follows does all of it."""
    monkeypatch.setattr(copying, "STEP_BYTES", 256)
    number, was_reached = 0, True
    while was_reached:
        filesystem, entries = SimulatedFilesystem(), some_entries()
        job = copy_job(filesystem, written_source(filesystem, entries, Source()))
        fail_once(filesystem, method, number)
        failures = 0
        while not job.is_done:
            try:
                job.step()
            except OSError as error:
                assert error.errno == errno.EMFILE
                failures += 1
        was_reached = failures == 1
        assert len(entries_of(filesystem, job)) == len(entries), number
        assert not job.damaged and job.contents.records == len(entries)
        assert filesystem.list(DIRECTORY) == [f"{7:020d}.cold", f"{7:020d}.cold-index"]
        number += 1
    assert number > 1


def fail_once(filesystem, method: str, calls_before: int) -> None:
    """Let one call of a method fail for lack of file descriptors."""
    original, calls = getattr(filesystem, method), itertools.count()

    def failing(*arguments):
        if next(calls) == calls_before:
            raise OSError(errno.EMFILE, "Too many open files")
        return original(*arguments)

    setattr(filesystem, method, failing)
