"""Foreign files in a data directory: named, and left as they are."""

from __future__ import annotations

import os
import socket

import pytest

from multiraft.storage import inspect
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.strays import (
    JOURNAL_POSITION_MAX,
    SeenSegment,
    checkpoint_position,
    is_unfinished,
    segment_start,
    stray_segments,
)
from tests.storage.world import VOTERS, Rounds, checkpoint, data_entry, open_entry, open_store
from tests.storage.world import write as round_of

ENTRIES, PARTITION = 40, 11
ZEROS, GARBAGE = bytes(100), b"not a segment " * 10


@pytest.fixture
def node(tmp_path):
    """A directory with several segments, two checkpoints, and entries behind them."""
    directory = tmp_path / "node"
    store = open_store(RealFilesystem(), str(directory))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    entries = [open_entry(1, 1, 1, PARTITION)]
    entries += [data_entry(1, index, 1, PARTITION, index - 2, [bytes(400)])
                for index in range(2, ENTRIES + 1)]
    for entry in entries:
        rounds.run(round_of(1, entry))
        store.partition_states[1].append(entry)
        if entry.index in (10, 20):
            store.partition_states[1].apply(entry.index)
            checkpoint(store, {1: entry.index})
    store.close()
    assert len(segments(directory)) > 3
    return directory


def segments(directory):
    return sorted((directory / "lane-0").glob("*.segment"))


def opened_with_all(directory):
    """The strays that a start finds; nothing is missing, and a round can be written."""
    store = open_store(RealFilesystem(), str(directory))
    try:
        store.create_group(1, 1, VOTERS)
        assert store.damage == []
        assert store.groups[1].quarantined == ""
        assert store.groups[1].bounds.last_index == ENTRIES
        Rounds(store).run(round_of(1, data_entry(1, ENTRIES + 1, 1, PARTITION, ENTRIES - 1,
                                                 [b"more"])))
        assert store.fetch(1, PARTITION, ENTRIES - 1, 1 << 20, 1 << 30) is not None
        return store.strays
    finally:
        store.close()


FAR = [str(number).zfill(20) for number in (
    99_999_999_999_999_999_999, (1 << 64) - 1, 1 << 64, 1 << 63, JOURNAL_POSITION_MAX,
    JOURNAL_POSITION_MAX - 8, 1 << 45)]
NAMES = ["1.segment", "000000000000000000001.segment", "+0000000000000004096.segment",
         "-0000000000000000001.segment", " 0000000000000004096.segment",
         "0000000000000000 096.segment", "٠" * 20 + ".segment", "copy.segment", ".segment",
         "00000000000000000000.segment~", "00000000000000000000.segment.bak", "notes.txt", ".swp",
         "notes.new", "lost+found.index", "99999999999999999999.index"]


@pytest.mark.parametrize("content", [ZEROS, GARBAGE, b""], ids=["zeros", "garbage", "empty"])
@pytest.mark.parametrize("name", [*NAMES, *[f"{number}.segment" for number in FAR]])
def test_a_stray_file_of_the_journal_is_named_and_left_alone(node, name, content):
    stray = node / "lane-0" / name
    stray.write_bytes(content)
    found = opened_with_all(node)
    assert [each.path for each in found] == [str(stray)]
    assert found[0].why
    assert stray.read_bytes() == content
    assert [each.path for each in inspect.strays_of(node)] == [str(stray)]
    assert stray not in [path for _, path in inspect.files_of(node)]


@pytest.mark.parametrize("content", [ZEROS, GARBAGE], ids=["zeros", "garbage"])
@pytest.mark.parametrize("behind", [8, 1000, 4095])
def test_a_stray_file_within_a_segment_damages_nothing(node, behind, content):
    start = segment_start(segments(node)[1].name)
    stray = node / "lane-0" / f"{start + behind:020d}.segment"
    stray.write_bytes(content)
    found = opened_with_all(node)
    assert [each.path for each in found] == [str(stray)]
    assert stray.read_bytes() == content


def test_a_copy_of_a_segment_under_another_number_is_a_stray(node):
    first = segments(node)[0]
    stray = first.with_name(f"{(1 << 40):020d}.segment")
    stray.write_bytes(first.read_bytes())
    assert [each.path for each in opened_with_all(node)] == [str(stray)]
    assert stray.read_bytes() == first.read_bytes()


def test_what_stands_where_the_journal_goes_on_and_is_no_segment_is_set_aside(node):
    """The name is needed.  Zeros are what a crash leaves of a segment that was never finished."""
    last = segments(node)[-1]
    start = segment_start(last.name) + 8192
    stray = last.with_name(f"{start:020d}.segment")
    stray.write_bytes(GARBAGE)
    [found] = opened_with_all(node)
    assert found.path == f"{stray}.corrupt"
    assert (stray.parent / f"{stray.name}.corrupt").read_bytes() == GARBAGE


def make_directory(path):
    path.mkdir()


def make_link(path):
    path.symlink_to("/etc/hostname")


def make_dangling_link(path):
    path.symlink_to("nowhere")


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("name", ["00000000000000001000.segment", "lost+found",
                                  "99999999999999999999.segment"])
@pytest.mark.parametrize("make", [make_directory, make_link, make_dangling_link, make_pipe,
                                  make_socket])
def test_what_is_no_file_is_named_and_never_opened(node, make, name):
    stray = node / "lane-0" / name
    make(stray)
    assert [each.path for each in opened_with_all(node)] == [str(stray)]
    assert os.path.lexists(stray)
    assert [each.path for each in inspect.strays_of(node)] == [str(stray)]


@pytest.mark.parametrize("name", ["checkpoint-", "checkpoint-notes", "checkpoint-1",
                                  "checkpoint-99999999999999999999", "checkpoint-old.copy",
                                  "checkpoint-zzzzzzzzzzzzzzzzzzzz", "checkpoint-" + "٠" * 20])
@pytest.mark.parametrize("how", ["garbage", "copy", "directory", "pipe"])
def test_a_stray_checkpoint_is_neither_read_nor_kept_in_the_place_of_one(node, name, how):
    """Names sort: a copy of an old one under a name that sorts last was taken for the newest, and
    counted among those that are kept."""
    ours = {path.name: path.read_bytes() for path in node.glob("checkpoint-*")}
    oldest = min(ours)
    stray = node / name
    if how in ("garbage", "copy"):
        stray.write_bytes(GARBAGE if how == "garbage" else ours[oldest])
    else:
        (make_directory if how == "directory" else make_pipe)(stray)
    assert [each.path for each in opened_with_all(node)] == [str(stray)]
    assert os.path.lexists(stray)
    assert {path.name for path in node.glob("checkpoint-*")} == {*ours, name}


def test_a_checkpoint_under_the_number_of_another_is_set_aside(node):
    ours = sorted(path for path in node.glob("checkpoint-*"))
    later = checkpoint_position(ours[-1].name) + 8
    (node / f"checkpoint-{later:020d}").write_bytes(ours[0].read_bytes())
    store = open_store(RealFilesystem(), str(node))
    assert store.groups[1].bounds.last_index == ENTRIES
    assert [damage.kind for damage in store.damage] == ["checkpoint"]
    assert "it is the checkpoint of position" in store.damage[0].why
    store.close()


@pytest.mark.parametrize(("name", "ours"), [
    ("checkpoint-00000000000000001400.new", True), ("00000000000000000000.index.new", True),
    ("checkpoint-00000000000000001400.copy.new", True), ("node.json.new", True),
    ("notes.new", False), (".new", False), ("1.index.new", False), ("node.json", False)])
def test_only_what_a_crash_left_unfinished_is_removed(name, ours):
    assert is_unfinished(name) is ours


def test_what_somebody_called_new_stays(node):
    kept = [node / "plans.new", node / "lane-0" / "notes.new"]
    for path in kept:
        path.write_bytes(b"mine")
    ours = node / "checkpoint-00000000000000009999.new"
    ours.write_bytes(b"half")
    opened_with_all(node)
    assert [path.read_bytes() for path in kept] == [b"mine"] * 2
    assert not ours.exists()


# ---- where a file without a header may stand ---------------------------------------------------


def intact(start: int, end: int, first_watermark: int) -> SeenSegment:
    return SeenSegment(start, end - start, True, first_watermark, end)


def headless(start: int, size: int = 100) -> SeenSegment:
    return SeenSegment(start, size, False, -1, start)


def test_a_damaged_header_within_the_journal_is_damage():
    """It may be of a segment with entries that a log needs."""
    files = [intact(0, 4000, 0), headless(4096), intact(12288, 13000, 12000)]
    assert stray_segments(files, RemovedRanges(), 0) == {}


def test_what_stands_between_two_segments_that_follow_each_other_is_a_stray():
    files = [intact(0, 4000, 0), headless(4090), intact(4096, 8000, 4000)]
    assert [*stray_segments(files, RemovedRanges(), 0)] == [1]


@pytest.mark.parametrize(("begin", "strays"), [(4000, [1]), (9000, [])])
def test_what_stands_before_a_removed_range_is_a_stray_if_the_range_continues_the_segment_before(
        begin, strays):
    """Else the range continues the segment whose header is damaged."""
    files = [intact(0, 4000, 0), headless(4096), intact(20480, 24000, 19000)]
    removed = RemovedRanges(0, ((begin, 19000),))
    assert [*stray_segments(files, removed, 24000)] == strays


def test_an_unfinished_segment_at_the_end_is_the_lanes():
    assert stray_segments([intact(0, 4000, 0), headless(4096, 0)], RemovedRanges(), 0) == {}


def test_what_stands_before_the_journal_is_a_stray():
    files = [headless(0), intact(8192, 9000, 8192)]
    assert [*stray_segments(files, RemovedRanges(8192), 8192)] == [0]


def test_a_segment_of_ours_is_one_wherever_it_stands():
    """Bytes missing before it are damage then."""
    files = [intact(0, 4000, 0), intact(1 << 50, (1 << 50) + 100, 0)]
    assert stray_segments(files, RemovedRanges(), 0) == {}
