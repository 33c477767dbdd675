"""Histories of a replica that gets snapshots while its journal is damaged, in any order.

Snapshots replace its log, its own committed entries stay, and records are copied in answers of any
size.  Every batch that is neither below the log start nor uncopied can be read, after each repair
and each start; a read of others fails or returns what was written.  In the end all are copied.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.storage.errors import RecordsNotCopied
from multiraft.types import Entry
from tests.storage.recovery.test_lost_truncations import PARTITION
from tests.storage.repair.test_raft_start_histories import Life, place, small
from tests.storage.repair.test_raft_start_histories import group as groups
from tests.storage.repair.test_repair_histories import GROUPS
from tests.storage.world import VOTERS, looked_up


class CopyingLife(Life):
    """A follower that gets snapshots."""

    installs = 0

    # ---- what happens ----------------------------------------------------------------------------

    def install(self, group: int) -> None:
        """The leader's applied state replaces the follower's log, unless it has all of that."""
        self.commit_all(group)
        member, states = self.members[group], self.peer.partition_states[group]
        last = states.applied_index
        if last <= member.known or member.mine[last - 1:last] == member.true[last - 1:last]:
            return
        first_index, terms = self.peer.record_terms(group)
        self.store.install(group, LogBounds(last + 1, member.true[last - 1].term, last), 0, VOTERS,
                           PartitionStates.restore(states.snapshot()), terms=terms,
                           first_index=first_index, committed=member.known)
        member.known, member.mine = last, member.true[:last]
        self.installs += 1
        self.checkpoint()
        self.check()

    def fall_behind(self, group: int, count: int) -> None:
        """The leader commits entries that the follower does not hear of, and a snapshot follows."""
        self.append(group, count, False)
        self.install(group)

    def copy(self, group: int, bytes_max: int) -> None:
        """One answer of the leader."""
        ranges = self.store.uncopied(group)
        if not ranges:
            return
        job = self.peer.records_job(group, *ranges[0], bytes_max)
        staged = self.store.repair.stage_records(group, job.execute(), job.first, job.through,
                                                 job.lacking, lambda: None)
        if staged is not None:
            self.submit(staged)
        self.note()
        self.check()

    def copy_all(self) -> None:
        for group in GROUPS:
            while self.store.uncopied(group):
                self.copy(group, 1 << 20)

    # ---- what holds ------------------------------------------------------------------------------

    def read(self, group: int, entry: Entry, may_fail: bool = False) -> None:
        try:
            super().read(group, entry, may_fail)
        except RecordsNotCopied as error:
            uncopied = self.log(group).records.uncopied
            assert may_fail or uncopied.first_in(entry.index, entry.index), f"{error}"

    def check_records(self, group: int) -> None:
        log, mine = self.log(group), self.members[group].mine
        log_start, uncopied = self.log_start(group), log.records.uncopied
        needed = [entry for entry in mine if entry.batch and entry.index not in log.records.missing
                  and not uncopied.first_in(entry.index, entry.index)
                  and (entry.base_offset + entry.batch.count > log_start
                       or entry.index >= log.raft_start)]
        index = log.partitions.get(PARTITION)
        found = []
        if index is not None:
            index._check()
            found = [each[:3] for each in looked_up(self.store, lambda: [
                *index.batches_from(0, self.store.table.indexed.blocks)])]
        known = {entry.index: (entry.base_offset, entry.base_offset + entry.batch.count,
                               entry.index) for entry in mine if entry.batch}
        assert all(each == known.get(each[2]) for each in found
                   if each[2] not in log.records.missing)
        assert {entry.index for entry in needed} <= {at for _, _, at in found}
        for entry in needed:
            self.read(group, entry)
            if entry.index < log.raft_start:
                assert log.records.holds(entry.index, entry.term) or (
                    log.records.in_file(entry.index) is not None
                    and log.records.term(entry.index) == entry.term)
        for entry in mine:
            if entry.batch and uncopied.first_in(entry.index, entry.index) and (
                    entry.base_offset + entry.batch.count > log_start):
                self.read(group, entry)
        listed = self.store.batches(group, PARTITION, log_start, 1 << 10)
        expected = [at for at in sorted(known) if known[at][1] > log_start]
        assert [at for _, _, at, _ in listed if at not in log.records.missing] == [
            at for at in expected[:len(listed)] if at not in log.records.missing]


appends = st.tuples(st.just("append"), groups, st.integers(1, 4), st.booleans())
installs = st.tuples(st.just("fall_behind"), groups, st.integers(1, 5))
copies = st.tuples(st.just("copy"), groups, st.sampled_from([1, 200, 1 << 20]))
steps = st.lists(st.one_of(
    appends, installs, installs, copies, copies,
    st.tuples(st.just("install"), groups),
    st.tuples(st.just("commit"), groups),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("commit_and_compact"), groups, st.integers(0, 4)),
    st.tuples(st.just("lead"), groups, small, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("rise"), groups, st.integers(0, 9)),
    st.tuples(st.just("trim"), groups),
    st.tuples(st.just("peer_compacts"), groups, small),
    st.tuples(st.just("remove"), st.integers(1, 3)),
    st.tuples(st.just("roll"), st.booleans()),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rot_checkpoint")),
    st.tuples(st.just("damage"), st.lists(place, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("flip"), st.integers(0, 20), st.booleans()),
), min_size=4, max_size=24)

#: The follower has committed entries, records among them, and others that are replaced.
BEHIND = [("append", 1, 4, True), ("commit_and_compact", 1, 2), ("append", 1, 2, True),
          ("lead", 1, 2, 3, False), ("append", 1, 3, False), ("peer_compacts", 1, 1)]
HALF = [*BEHIND, ("install", 1), ("copy", 1, 200)]


@settings(max_examples=200)
@given(steps)
@example([*HALF, ("restart",), ("copy", 1, 1)])
@example([*HALF, ("rot_checkpoint",), ("checkpoint",), ("copy", 1, 1), ("restart",)])
@example([*HALF, ("fall_behind", 1, 4), ("restart",), ("copy", 1, 1), ("checkpoint",)])
@example([*HALF, ("checkpoint",), ("damage", [(0, 3)], False), ("restart",)])
@example([*HALF, ("checkpoint",), ("damage", [(0, 3)], True), ("restart",)])
@example([*HALF, ("checkpoint",), ("flip", 0, False), ("restart",)])
@example([*HALF, ("checkpoint",), ("flip", 0, True), ("restart",)])
@example([*HALF, ("append", 1, 2, True), ("roll", True), ("commit_and_compact", 1, 0),
          ("remove", 3), ("restart",)])
def test_no_record_is_passed_over_and_all_are_copied(steps):
    lived(steps)


def test_snapshots_are_installed_in_these_histories():
    life = lived(HALF)
    assert life.installs == 1
    assert len(lived([*HALF, ("fall_behind", 1, 4)]).log(1).installed) == 2


def lived(steps) -> CopyingLife:
    life = CopyingLife()
    for what, *how in [*steps, ("restart",)]:
        getattr(life, what)(*how)
    life.copy_all()
    life.restart()
    life.copy_all()
    for group in GROUPS:
        life.sync(group)
        assert life.store.is_complete(group) or life.deleted(group)
    life.check()
    return life
