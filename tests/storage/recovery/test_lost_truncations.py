"""A hole in the journal may have swallowed the record of a drop: what was dropped must not come
back.

Histories of a follower whose leaders made it drop entries, any part of its journal then lost,
repaired from a peer that has the true log: the replica comes back with that log and with nothing
else, and every later start finds the same.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from multiraft.storage.errors import CorruptJournalRange
from multiraft.storage.repair.coordinator import RepairCoordinator, ReplayEntries, SendRequest
from multiraft.types import Configuration, Entry, HardState
from tests.storage.damage import DIRECTORY, FIRST, Disk
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

PARTITION = 7


class Status(NamedTuple):
    """Part of a core's status that the repair coordinator reads."""

    first_index: int
    last_index: int
    applied_index: int
    commit: int
    leader: int
    configuration: Configuration
    vote_requester: int = 0


class Core:
    """The consensus of a damaged replica whose leader holds the true log and has committed it."""

    def __init__(self, store, true: list[Entry], commit: int):
        self.status = self.repair = self  # as the views of a core
        self._store = store
        self._true = true
        self._commit = commit
        self._rounds = Rounds(store)
        self._following = self._cleared = False

    def groups(self) -> tuple[int, ...]:
        return (1,)

    def of(self, group: int) -> Status:
        # Whatever is dropped is staged at once.
        last_index = self._store.table.log(1).index.last_index
        return Status(1, last_index, self._commit, self._commit, 2, VOTERS)

    def has_applied_in_term(self, group: int) -> bool:
        return True

    def may_truncate(self, group: int, first_gone: int) -> bool:
        return self._commit < first_gone

    def truncate(self, group: int, first_gone: int) -> None:
        self._write(group, first_gone, [])

    def set_term_runs(self, group: int, term_runs) -> None:
        """Nothing is kept here."""

    def set_configurations(self, group: int, configurations) -> None:
        """Nor here."""

    def set_guessed_through(self, group: int, index: int) -> None:
        """Nor here."""

    def is_following(self, group: int) -> bool:
        return self._following

    def begin_head_recovery(self, group: int) -> None:
        """Truncate behind the log's end first, as ``head_recovery.begin`` does.  The leader finds
        the place where the logs part from the end, as appends do, and sends the rest."""
        self._following = self._cleared = True
        index = self._store.table.logs[group].index
        common = min(index.last_index, len(self._true))
        while common and index.term(common) != self._true[common - 1].term:
            common -= 1
        assert common >= self._commit, f"what follows {common} of {self._commit} would be dropped"
        self._write(group, common + 1, self._true[common:])

    def _write(self, group: int, first_gone: int, entries: list[Entry]) -> None:
        tail = self._store.partition_states[group]
        if tail.last_index >= first_gone:
            tail.truncate(first_gone)
        for entry in entries:
            tail.append(entry)
        self._rounds.run(write(group, *entries, drop_from=first_gone,
                               hard_state=HardState(self._true[-1].term, 2)))

    def is_head_recovered(self, group: int) -> bool:
        return self._cleared

    def repaired(self, group: int) -> None:
        """It votes again."""

    def quarantine(self, group: int, why: str) -> None:
        """It votes no more."""


def repair(store, peer, commit: int, true: list[Entry], core: Core | None = None) -> int:
    """Let the store repair itself from the peer; how many requests that took."""

    def submit(staged) -> None:
        staged.execute()
        store.finish(staged)

    repairer = RepairCoordinator(1, store, core or Core(store, true, commit), submit)
    others = RepairCoordinator(2, peer, Core(peer, true, len(true)), submit)
    for requests in range(200):
        action = repairer.step(1)
        if isinstance(action, SendRequest):
            jobs, answer = others.copies_for(action.request)
            given = tuple(entry for job in jobs for entry in job.execute())
            repairer.on_response(answer._replace(entries=given))
        elif isinstance(action, ReplayEntries):
            repairer.on_replay_read(1, action.job.execute())
        if not repairer.groups:
            return requests
    raise AssertionError(f"never repaired: {store.repair.quarantined(1).quarantined}")


class History(NamedTuple):
    """A follower's log, as its leaders left it."""

    disk: Disk
    true: list[Entry]
    places: list[int]  # where each write begins, and the journal's end
    peer: object  # the store of a peer with the true log


def lived(changes: list[tuple[int, int]], checkpoint_after: int, applied: int) -> History:
    """Each change is a new leader's: so many entries dropped, so many appended.  Then, after one of
    them, a checkpoint that has the true log's first entries applied."""
    disk, true, places = Disk(), [], []
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    final = final_log(changes)
    for term, (dropped, appended) in enumerate(changes, 1):
        places.append(store.table.journal.position)
        first = max(1, len(true) - dropped + 1)
        del true[first - 1:]
        added = follow_on(true, term, appended)
        true += added
        rounds.run(write(1, *added, drop_from=first if dropped else 0,
                         hard_state=HardState(term, 2)))
        if term == checkpoint_after:
            common = next((at for at, (mine, last) in enumerate(zip(true, final))
                           if mine.term != last.term), min(len(true), len(final)))
            upto = min(applied, common)
            for entry in true[:upto]:
                store.partition_states[1].append(entry)
            store.partition_states[1].apply(upto)
            checkpoint(store, {1: upto}, upto)
    places.append(store.table.journal.position)
    rounds.run(write(1, hard_state=HardState(len(changes) + 1, 2)))  # says that all that is durable
    store.close()
    peer_disk = Disk()
    peer = open_store(peer_disk.filesystem, DIRECTORY)
    peer.create_group(1, 1, VOTERS)
    Rounds(peer).run(write(1, *true, hard_state=HardState(len(changes) + 1, 2)))
    for entry in true:
        peer.partition_states[1].append(entry)
    peer.partition_states[1].apply(len(true))
    return History(disk, true, places, peer)


def follow_on(log: list[Entry], term: int, count: int, group: int = 1) -> list[Entry]:
    """So many entries of a term behind a log: it opens a partition and fills it."""
    added: list[Entry] = []
    for _ in range(count):
        index = len(log) + len(added) + 1
        last = next((entry for entry in reversed([*log, *added]) if entry.batch), None)
        if index == 1:
            added.append(open_entry(group, 1, term, PARTITION))
        elif index % 3 == 0:
            added.append(noop_entry(group, index, term))
        else:
            offset = last.base_offset + last.batch.count if last else 0
            values = [b"term %d" % term] * (1 + (term + index) % 3)
            added.append(data_entry(group, index, term, PARTITION, offset, values))
    return added


def final_log(changes: list[tuple[int, int]]) -> list[Entry]:
    log: list[Entry] = []
    for term, (dropped, appended) in enumerate(changes, 1):
        del log[max(0, len(log) - dropped):]
        log += follow_on(log, term, appended)
    return log


def check(store, true: list[Entry]) -> None:
    """The log, and what its partition's index says of it."""
    log = store.table.logs[1]
    assert not log.quarantined
    assert [*store.read_job(1, 1, len(true)).execute()] == true
    assert log.index.last_index == len(true)
    batches = [(entry.base_offset, entry.base_offset + entry.batch.count, entry.index)
               for entry in true if entry.batch]
    index = log.partitions.get(PARTITION)
    if index is None:
        assert not batches
        return
    index._check()
    assert [index.batch(slot) for slot in range(len(index))] == batches
    assert not batches or index.end_offset == batches[-1][1]


changes = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=2, max_size=7)


holes = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3)


@given(changes, st.integers(0, 7), st.integers(0, 20), holes, st.booleans(), st.booleans())
@example([(0, 5), (1, 2), (0, 2)], 3, 9, [(1, 0)], False, False)  # the drop and what replaced it
@example([(0, 6), (2, 2), (0, 2)], 3, 9, [(1, 0)], True, False)
@example([(0, 3), (2, 1), (0, 4)], 3, 9, [(1, 0)], False, False)  # more dropped than stood there
@example([(0, 2), (1, 1), (2, 1), (0, 3)], 4, 1, [(2, 0), (1, 0)], False, False)  # two holes
@example([(0, 1), (0, 2)], 3, 0, [(1, 0)], False, True)  # the log's last before it, then followed
@example([(0, 1), (0, 1)], 0, 0, [(0, 1)], True, True)  # copies in a segment, more in the next
@example([(0, 1), (0, 1), (0, 1), (3, 1)], 4, 1, [(0, 0), (2, 1)], False, False)  # too high a term
def test_a_replica_comes_back_with_its_leaders_log(changes, checkpoint_after, applied, holes,
                                                   found_by_scrub, goes_on):
    """``goes_on``: once it is repaired a leader of a new term appends to its log."""
    history = lived(changes, checkpoint_after, applied)
    term = len(changes) + 1
    for number, (begin, length) in enumerate(holes):
        begin %= len(changes)
        until = begin + 1 + length % (len(changes) - begin)
        begin, end = history.places[begin], history.places[until]
        store = None
        if found_by_scrub and not number:  # with every log in memory
            store = open_store(history.disk.filesystem, DIRECTORY)
        history.disk.filesystem.overwrite(FIRST, begin, bytes(end - begin))
        if store is not None:
            scrub(store, history, begin, end)
        for start in range(3):
            store = open_store(history.disk.filesystem, DIRECTORY)
            restored = store.create_group(1, 1, VOTERS)
            assert not start or not restored.quarantined, "it is repaired for good"
            if restored.quarantined:
                repair(store, history.peer, restored.commit, history.true)
            check(store, history.true)
            if goes_on:
                term += 1
                append(store, history, term)
            store.close()


def append(store, history: History, term: int) -> None:
    """A leader of that term appends an entry to the replica's log and to its peer's."""
    added = follow_on(history.true, term, 1)
    history.true.extend(added)
    for each in (store, history.peer):
        each.partition_states[1].append(added[0])
        Rounds(each).run(write(1, *added, hard_state=HardState(term, 2)))
    history.peer.partition_states[1].apply(len(history.true))


def scrub(store, history: History, begin: int, end: int) -> None:
    """Report a damaged range that no log points to, like a scrub."""
    repairer = RepairCoordinator(1, store, Core(store, history.true, 0), lambda staged: None)
    for _, index in store.repair.owners(begin, end):
        store.repair.record_damage(1, index, "found by the scrub")
    repairer.on_damage(CorruptJournalRange(begin, end, "found by the scrub"))
    repair(store, history.peer, store.groups[1].applied, history.true)
    check(store, history.true)
    store.close()
