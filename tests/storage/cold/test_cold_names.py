"""Cold segments in checkpoints: bytes, and refusal of names that contradict each other."""

from __future__ import annotations

import cbor2
import pytest

from multiraft.storage import chunked_cbor
from multiraft.storage.atomic_file import write_envelope
from multiraft.storage.checkpoint import (
    CHECKPOINT_MAGIC,
    CHECKPOINT_VERSION,
    CheckpointJob,
    checkpoint_name,
    read_checkpoint,
)
from multiraft.storage.cold.cold_files import ColdNames, ColdSegments
from multiraft.storage.cold.cold_segment import COLD_NUMBER_MAX, ColdName, place_in
from multiraft.storage.errors import CorruptFile
from multiraft.storage.removed_ranges import RemovedRanges
from tests.storage.damage import DIRECTORY

NAMES = ColdNames(9, (ColdName(2, 4096, 5, 6000), ColdName(7, 8192, 6, 7000, 3)))


def written(filesystem, cold: ColdNames, ranges=()) -> str:
    filesystem.make_directory(DIRECTORY)
    CheckpointJob(filesystem, DIRECTORY, 10_000, RemovedRanges(0, ranges), cold, {}, None,
                  2).execute()
    return f"{DIRECTORY}/{checkpoint_name(10_000)}"


@pytest.mark.parametrize("ranges", [(), ((10, 20), (30, 40))])
def test_a_checkpoint_names_cold_segments(simulated, ranges):
    path = written(simulated, NAMES, ranges)
    body = cbor2.loads(simulated.image(path)[24:-4])
    assert body == [10_000, 0, [], None, [list(each) for each in ranges],
                    [9, [[2, 4096, 5, 6000, 0], [7, 8192, 6, 7000, 3]]]]
    found = read_checkpoint(simulated, path)
    assert found.cold == NAMES and found.removed.ranges == ranges


def test_a_checkpoint_without_cold_segments_has_no_field_for_them(simulated):
    path = written(simulated, ColdNames())
    assert len(cbor2.loads(simulated.image(path)[24:-4])) == 4
    assert read_checkpoint(simulated, path).cold == ColdNames()
    path = written(simulated, ColdNames(5))
    assert read_checkpoint(simulated, path).cold == ColdNames(5), "numbers are not given again"


@pytest.mark.parametrize("cold", [
    [9, [[7, 1, 1, 1, 0], [2, 1, 1, 1, 0]]],
    [9, [[2, 1, 1, 1, 0], [2, 1, 1, 1, 0]]],
    [9, [[9, 1, 1, 1, 0]]],
    [COLD_NUMBER_MAX + 1, []],
    [9, [[2, 1, 1, 1]]],
    [9, [[2, 1, -1, 1, 0]]],
    [9],
])
def test_names_that_contradict_each_other_are_damage(simulated, cold):
    simulated.make_directory(DIRECTORY)
    write_envelope(simulated, DIRECTORY, "checkpoint-x", CHECKPOINT_MAGIC, CHECKPOINT_VERSION,
                   chunked_cbor.dumps([5, 0, [], None, [], cold]))
    with pytest.raises(CorruptFile):
        read_checkpoint(simulated, f"{DIRECTORY}/checkpoint-x")


def test_segments_are_found_by_place_and_number(simulated):
    cold = ColdSegments("/node/cold-0", NAMES)
    assert [each.name.number for each in cold] == [2, 7] and len(cold) == 2 and cold.bytes == 12288
    assert cold.segment_of(place_in(7, 100)).name == NAMES.names[1]
    assert cold.behind(0).name.number == cold.behind(2).name.number == 2
    assert cold.behind(3).name.number == 7 and cold.behind(8) is None
    assert NAMES.has(7) and not NAMES.has(3) and not NAMES.has(8)
    assert cold.take_number() == 9
    added = cold.add(ColdName(9, 100, 1, 1))
    assert cold.named() == ColdNames(10, (*NAMES.names, added.name))
    cold.remove(added)
    assert added.is_removed and cold.named() == ColdNames(10, NAMES.names)
    assert cold.leftovers == [9]
