"""Data directories become dumps: the logs that a recovery would find, and the tags of records."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos import replicas, values
from chaos.history import CORRUPT, key_of
from multiraft.partitions.retention_records import (
    LogStart,
    clock_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
)
from multiraft.raft import joint_quorum, replica_records
from multiraft.raft.ready import GroupWrite
from multiraft.storage.filesystem import RealFilesystem
from multiraft.types import LAST_INDEXED_KIND, Configuration, Entry, EntryKind, HardState
from node.log_commands import inspect
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    write,
)

RUN, KEY = 9, key_of("t", 100, 0)
GROUP, PARTITION = 1, 100


def data(index: int, term: int, offset: int, *numbers: int, key: str = KEY) -> Entry:
    return data_entry(GROUP, index, term, PARTITION, offset,
                      [values.encode(RUN, key, number, 10) for number in numbers])


class Directory:
    """A real data directory to which rounds are written."""

    def __init__(self, path: Path):
        self.path = path
        self.store = open_store(RealFilesystem(), str(path))
        self.store.create_group(GROUP, 1, VOTERS)
        self._rounds = Rounds(self.store)

    def run(self, *entries: Entry, **more) -> None:
        tail = self.store.partition_states[GROUP]
        if more.get("drop_from"):
            tail.truncate(more["drop_from"])
        for entry in entries:
            tail.append(entry)
        self._rounds.run(write(GROUP, *entries, **more))

    def mark(self, entry: Entry) -> None:
        self._rounds.run(GroupWrite(GROUP, 1, 0, (), None, entry))

    def rows(self) -> list[dict]:
        result = CliRunner().invoke(inspect, [str(self.path), "--json", "--payload"])
        assert result.exit_code in (0, 1), result.output
        return [json.loads(line) for line in result.output.splitlines()]

    def log(self) -> replicas.ReplicaLog:
        return replicas.from_rows(self.rows(), 1, RUN).logs[GROUP]


@pytest.fixture
def directory(tmp_path):
    made = Directory(tmp_path / "data")
    yield made
    made.store.close()


def test_a_log_is_what_was_written(directory):
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION),
                  hard_state=HardState(1, 2))
    directory.run(data(3, 1, 0, 5, 6, 8))
    log = directory.log()
    assert list(log.terms) == [1, 1, 1]
    assert log.kinds == ["noop", "partition_open", "data"]
    assert log.batch(3) == replicas.LogBatch(3, PARTITION, 0, values.crc_of_key(KEY), (5, 6, 8))
    assert log.batch(2) is None
    assert log.votes == [(1, 2)]


def test_a_dropped_suffix_is_gone(directory):
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION), data(3, 1, 0, 5))
    directory.run(noop_entry(GROUP, 3, 2), drop_from=3, hard_state=HardState(2, 0))
    log = directory.log()
    assert list(log.terms) == [1, 1, 2]
    assert log.batch(3) is None


def test_a_new_configuration_is_known(directory):
    joint = Configuration((1, 2), (4,), (1, 2, 3))
    directory.run(Entry(EntryKind.MEMBERSHIP, GROUP, 1, 1, 1, payload=joint_quorum.encode(joint)))
    assert directory.log().members == {1: [[1, 2], [4], [1, 2, 3]]}


def test_a_tombstone_ends_a_log(directory):
    directory.run(noop_entry(GROUP, 1, 1))
    directory.mark(
        replica_records.tombstone(GROUP, 1, replica_records.Tombstone(HardState(1, 2), 1, 1))
    )
    log = directory.log()
    assert list(log.terms) == []


def test_a_checkpoint_says_what_is_committed(directory):
    directory.run(noop_entry(GROUP, 1, 1), noop_entry(GROUP, 2, 1))
    directory.store.partition_states[GROUP].apply(2)
    checkpoint(directory.store, {GROUP: 2})
    directory.run(noop_entry(GROUP, 3, 1))
    log = directory.log()
    assert (log.commit, log.applied, log.last_index) == (2, 2, 3)
    assert log.configuration == [[1, 2, 3], [], []]


def test_a_flipped_bit_is_damage_and_no_contents(directory):
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION), data(3, 1, 0, 5))
    directory.run(noop_entry(GROUP, 4, 1))
    whole = directory.log()
    (segment,) = (directory.path / "lane-0").glob("*.segment")
    record = values.encode(RUN, KEY, 5, 10)
    at = segment.read_bytes().index(record)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([record[0] ^ 1]))
    log = directory.log()
    assert list(log.terms) == list(whole.terms)
    assert log.contents[2] == replicas.DAMAGED
    assert log.batch(3) is None


def test_a_torn_tail_is_not_in_the_log(directory):
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION), data(3, 1, 0, 5))
    (segment,) = (directory.path / "lane-0").glob("*.segment")
    record = values.encode(RUN, KEY, 5, 10)
    at = segment.read_bytes().index(record)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes(len(record)))
    assert directory.log().last_index == 2


def test_the_same_entry_has_the_same_contents_in_every_directory(tmp_path):
    logs = []
    for node, before in ((1, 0), (2, 3)):
        directory = Directory(tmp_path / str(node))
        for _ in range(before):  # another place in the journal, and another checksum
            directory.run(noop_entry(GROUP, 1, 1))
            directory.run(drop_from=1)
        directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION),
                      data(3, 1, 0, 5))
        logs.append(directory.log())
        directory.store.close()
    assert logs[0].contents == logs[1].contents


@pytest.mark.parametrize(("key", "expected"), [
    (key_of("t", 99, 0), (values.crc_of_key(key_of("t", 99, 0)), (5,))),
])
def test_records_of_another_key_say_so(directory, key, expected):
    directory.run(open_entry(GROUP, 1, 1, PARTITION), data(2, 1, 0, 5, key=key))
    batch = directory.log().batch(2)
    assert (batch.key, batch.values) == expected


def test_records_of_another_run_are_nobody_s(directory):
    directory.run(open_entry(GROUP, 1, 1, PARTITION), data(2, 1, 0, 5))
    log = replicas.from_rows(directory.rows(), 1, RUN + 1).logs[GROUP]
    assert log.batch(2)[3:] == (replicas.NO_KEY, (CORRUPT,))


def row(kind: str, index: int, term: int = 1, problem: str = "", crc: int = 1) -> dict:
    return {"entry": kind, "kind": kind, "group": GROUP, "index": index, "term": term,
            "partition": 0, "base_offset": -1, "problem": problem, "payload_crc": crc}


SEGMENT = {"file": "segment", "facts": {"start": 0}}
CORRUPTION = "payload: corruption: something later calls it durable"


def followed(*rows: dict) -> replicas.ReplicaLog:
    return replicas.from_rows([SEGMENT, *rows], 1, RUN).logs[GROUP]


def test_a_copy_takes_the_place_of_a_damaged_entry():
    log = followed(row("noop", 1), row("metadata", 2, problem=CORRUPTION), row("noop", 3),
                   row("repair", 2), row("metadata", 2, crc=7))
    whole = followed(row("noop", 1), row("metadata", 2, crc=7), row("noop", 3))
    assert log.contents == whole.contents
    assert list(log.terms) == [1, 1, 1]


def test_a_copy_fills_a_place_where_nothing_can_be_read():
    log = followed(row("noop", 1), row("noop", 3), row("repair", 2), row("metadata", 2, crc=7))
    assert list(log.terms) == [1, 1, 1]
    assert log.kinds == ["noop", "metadata", "noop"]


def test_a_copy_of_an_entry_that_was_dropped_is_nothing():
    log = followed(row("noop", 1), row("noop", 2), row("suffix_drop", 2), row("noop", 2, term=2),
                   row("repair", 2), row("metadata", 2, crc=7))
    assert log.kinds == ["noop", "noop"]
    assert list(log.terms) == [1, 2]


def test_what_a_snapshot_stands_for_is_left_out():
    checkpoint_rows = [
        {"file": "checkpoint", "facts": {"position": 90}},
        {"checkpoint_group": GROUP, "group": GROUP, "commit": 6, "applied": 6, "quarantined": "",
         "voters": [1], "learners": [], "outgoing": [], "removed": False, "snapshot_position": 50,
         "first_index": 6}]
    rows = [*checkpoint_rows, SEGMENT, row("noop", 1), row("noop", 2),
            {"file": "segment", "facts": {"start": 50}}, row("noop", 6), row("noop", 7)]
    log = replicas.from_rows(rows, 1, RUN).logs[GROUP]
    assert (log.first_index, log.last_index, log.commit) == (6, 7, 6)


def test_a_dump_is_read_as_it_was_written(directory, tmp_path):
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION),
                  hard_state=HardState(1, 2))
    directory.run(data(3, 1, 0, 5, 6, 9), data(4, 1, 3, 10))
    path = replicas.dump(directory.path, 3, RUN, tmp_path / "replicas")
    (found,) = replicas.load_all(tmp_path / "replicas")
    assert path == tmp_path / "replicas" / "3.jsonl"
    assert found == replicas.from_rows(directory.rows(), 3, RUN)


def test_what_cannot_be_read_survives_the_file(tmp_path):
    log = replicas.ReplicaLog(first_index=4)
    log.put(4, 2, "noop", 1)
    log.put(7, 3, replicas.GAP, 9)
    replicas.write(tmp_path / "1.jsonl", replicas.Dump(1, RUN, {GROUP: log}))
    assert replicas.load(tmp_path / "1.jsonl").logs[GROUP] == log
    assert list(log.terms) == [2, replicas.UNREADABLE, replicas.UNREADABLE, 3]


def test_a_file_that_is_no_dump_is_refused(tmp_path):
    (tmp_path / "1.jsonl").write_text('{"node": 1, "run": 2, "groups": []}\n[1]\n')
    with pytest.raises(replicas.BadDump, match="1.jsonl"):
        replicas.load(tmp_path / "1.jsonl")


def test_a_directory_that_is_not_ours_is_refused(tmp_path):
    with pytest.raises(replicas.BadDump, match="exit 2"):
        replicas.dump(tmp_path, 1, RUN, tmp_path / "replicas")


def test_payloads_are_shown_only_when_they_are_asked_for(directory):
    directory.run(open_entry(GROUP, 1, 1, PARTITION), data(2, 1, 0, 5))
    command = [sys.executable, "-m", "admin_cli", "log", "inspect", str(directory.path), "--json"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in plain.splitlines()]
    assert not any("payload" in row for row in rows)
    (crc,) = [row["payload_crc"] for row in rows if row.get("kind") == "data"]
    assert crc


def log_start_row(index: int, log_start: int, **more) -> dict:
    return {**row("log_start", index, **more), "partition": PARTITION, "base_offset": log_start}


def test_log_starts_are_known_while_their_entry_is_in_the_log():
    log = followed(row("noop", 1), log_start_row(2, 4), log_start_row(3, 9),
                   log_start_row(4, 11, problem=CORRUPTION), row("suffix_drop", 3),
                   row("noop", 3, term=2))
    assert log.log_starts == {2: [(PARTITION, 4)]}
    log.drop_head(3)
    assert log.log_starts == {}


def test_log_starts_survive_the_file(tmp_path):
    log = followed(row("noop", 1), log_start_row(2, 4), row("noop", 3))
    replicas.write(tmp_path / "1.jsonl", replicas.Dump(1, RUN, {GROUP: log}))
    assert replicas.load(tmp_path / "1.jsonl").logs[GROUP] == log


def test_a_log_start_is_read_from_a_data_directory(directory):
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION))
    directory.run(data(3, 1, 0, 5, 6, 9),
                  Entry(EntryKind.LOG_START, GROUP, 1, 1, 4, PARTITION, 2, b""))
    assert directory.log().log_starts == {4: [(PARTITION, 2)]}


def test_every_row_of_a_log_start_is_read(directory, tmp_path):
    directory.run(open_entry(GROUP, 1, 1, PARTITION), open_entry(GROUP, 2, 1, PARTITION + 1))
    directory.run(data(3, 1, 0, 5, 6, 9))
    rows = [LogStart(PARTITION, 2, 70), LogStart(PARTITION + 1, 0, 0)]
    directory.run(Entry(EntryKind.LOG_START, GROUP, 1, 1, 4, payload=log_starts_payload(rows)))
    log = directory.log()
    assert log.log_starts == {4: [(PARTITION, 2), (PARTITION + 1, 0)]}
    replicas.write(tmp_path / "1.jsonl", replicas.Dump(1, RUN, {GROUP: log}))
    assert replicas.load(tmp_path / "1.jsonl").logs[GROUP] == log


def test_entries_that_decide_retention_have_their_index(directory):
    directory.run(Entry(EntryKind.CLOCK, GROUP, 1, 1, 1, payload=clock_payload(0, 9)),
                  open_entry(GROUP, 2, 1, PARTITION),
                  Entry(EntryKind.PRODUCERS_EXPIRE, GROUP, 1, 1, 3, payload=expire_payload(2)),
                  Entry(EntryKind.PARTITION_DELETE, GROUP, 1, 1, 4,
                        payload=delete_payload(7, [PARTITION])))
    log = directory.log()
    assert log.kinds == ["clock", "partition_open", "producers_expire", "partition_delete"]
    assert replicas.DAMAGED not in log.contents


def test_every_kind_of_a_log_is_known():
    kinds = {each.name.lower() for each in EntryKind if 0 < each <= LAST_INDEXED_KIND}
    assert kinds == set(replicas.INDEXED) - {replicas.GAP}


def test_a_log_start_of_a_later_version_is_refused():
    payload = base64.b64encode(struct.pack("<II", 3, 0)).decode()
    with pytest.raises(replicas.BadDump, match="version 3"):
        followed({**log_start_row(1, -1), "payload": payload})


# ---- compacted logs ------------------------------------------------------------------------------


def compacted(directory: Directory) -> None:
    """Write four batches and a log start at index 6, of which the Raft log keeps the last entry."""
    store = directory.store
    directory.run(noop_entry(GROUP, 1, 1), open_entry(GROUP, 2, 1, PARTITION))
    for offset in range(3):
        directory.run(data(3 + offset, 1, offset, 5 + offset))
    directory.run(Entry(EntryKind.LOG_START, GROUP, 1, 1, 6,
                        payload=log_starts_payload([LogStart(PARTITION, 1, 70)])))
    directory.run(data(7, 2, 3, 8))
    store.partition_states[GROUP].apply(7)
    checkpoint_twice(directory, 7)
    assert store.compact(GROUP, 7) == 7
    directory.run(noop_entry(GROUP, 8, 2))
    checkpoint(store, {GROUP: 7})


def checkpoint_twice(directory: Directory, applied: int) -> None:
    """Write two checkpoints that have applied as much, so that the Raft start may rise."""
    for term in (8, 9):
        directory.run(hard_state=HardState(applied + term, 0))
        checkpoint(directory.store, {GROUP: applied})


def test_a_compacted_log_begins_at_its_raft_start_and_leaves_records_and_extents(directory,
                                                                                 tmp_path):
    compacted(directory)
    log = directory.log()
    assert (log.first_index, log.last_index, log.prev_term, log.term(6)) == (7, 8, 1, 1)
    assert (list(log.terms), log.log_starts) == ([2, 2], {})
    found = {index: record.batch.values for index, record in log.records.items()}
    found.pop(3, None)  # below the log start, and in the journal until its segment goes
    assert found == {4: (6,), 5: (7,)}
    assert log.partitions == {PARTITION: replicas.PartitionExtent(0, 1, 4)}
    replicas.dump(directory.path, 3, RUN, tmp_path / "replicas")
    (found,) = replicas.load_all(tmp_path / "replicas")
    assert found == replicas.from_rows(directory.rows(), 3, RUN)
    assert found.logs[GROUP] == log and found.unreadable == 0


def test_a_log_that_is_compacted_as_a_whole_is_not_empty(directory):
    compacted(directory)
    directory.store.partition_states[GROUP].apply(8)
    checkpoint_twice(directory, 8)
    assert directory.store.compact(GROUP, 9) == 9
    directory.run(hard_state=HardState(20, 0))
    checkpoint(directory.store, {GROUP: 8})
    log = directory.log()
    assert (log.first_index, log.last_index, log.term(8)) == (9, 8, 2)
    assert not log.is_empty and not log.terms and 7 in log.records


CHECKPOINT = [
    {"file": "checkpoint", "facts": {"position": 90}},
    {"checkpoint_group": GROUP, "group": GROUP, "commit": 9, "applied": 9, "quarantined": "",
     "voters": [1], "learners": [], "outgoing": [], "removed": False, "snapshot_position": 0,
     "first_index": 8, "prev_term": 3, "record_terms": [[2, 1], [6, 3]], "uncopied": [[6, 6]],
     "missing": [4]},
    {"checkpoint_partition": PARTITION, "group": GROUP, "partition": PARTITION, "epoch": 1,
     "start_offset": 0, "log_start": 2, "next_offset": 5, "sealed": False}]


def stored(index: int, term: int, number: int, **more) -> dict:
    batch = data(index, term, index, number)
    return {**row("data", index, term, **more), "partition": PARTITION, "base_offset": index,
            "payload": base64.b64encode(bytes(batch.payload)).decode()}


def test_records_come_from_journal_and_cold_segments_and_have_the_terms_of_the_checkpoint():
    log = replicas.from_rows([
        *CHECKPOINT, SEGMENT, stored(3, 1, 5), stored(4, 1, 6, problem=CORRUPTION),
        stored(5, 2, 7), stored(8, 3, 9), row("noop", 9, 3),
        {"file": "cold segment", "facts": {"number": 0}}, stored(2, 1, 4), stored(7, 3, 8),
        stored(8, 2, 99)], 1, RUN).logs[GROUP]
    assert {index: record.batch and record.batch.values
            for index, record in sorted(log.records.items())} == {
        2: (4,), 3: (5,), 4: None, 7: (8,)}
    assert list(log.terms) == [3, 3], "an entry of a cold segment is no entry of the log"
    assert (log.lacks(4), log.lacks(6), log.lacks(7)) == (True, True, False)


def test_a_copy_of_a_record_takes_the_place_of_a_damaged_one():
    log = replicas.from_rows([
        *CHECKPOINT, SEGMENT, stored(3, 1, 5, problem=CORRUPTION), row("noop", 8, 3),
        row("repair", 3), stored(3, 1, 5)], 1, RUN).logs[GROUP]
    assert log.records[3].batch.values == (5,) and list(log.terms) == [3]


def test_records_of_a_removed_replica_are_none():
    log = replicas.from_rows([*CHECKPOINT, SEGMENT, stored(3, 1, 5), row("tombstone", 4),
                              row("noop", 8, 3)], 1, RUN).logs[GROUP]
    assert log.records == {} and log.first_index == 8


def test_records_that_a_removed_replica_had_copied_leave_with_it():
    """Its snapshot is in no checkpoint any longer: the tombstone has replaced it there."""
    rows = [row("noop", 7, 2), row("repair", 4), stored(4, 1, 5), row("repair", 5), row("noop", 5)]
    log = replicas.from_rows(rows, 1, RUN).logs[GROUP]
    assert (log.first_index, [*log.records]) == (7, [4])
    log = replicas.from_rows([*rows, row("tombstone", 0)], 1, RUN).logs[GROUP]
    assert not log.terms and not log.records


def test_places_that_cannot_be_read_are_counted():
    place = {"entry": None, "kind": "", "group": -1, "index": 0, "problem": CORRUPTION}
    found = replicas.from_rows([SEGMENT, row("noop", 1), place,
                                {**place, "problem": f"chain: {replicas.TORN}"}], 1, RUN)
    assert found.unreadable == 1
