"""Model of a journal: its items in order, and the state that any prefix of them means.

A crash may lose a suffix of the items that were not yet durable and nothing else.  So a recovered
store equals the state after some prefix that is at least as long as the durable part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.raft.ready import GroupWrite
from multiraft.storage.errors import CorruptRange
from multiraft.storage.store import Store
from multiraft.types import Entry, HardState


@dataclass
class GroupState:
    entries: list[Entry] = field(default_factory=list)
    hard_state: HardState = HardState(0, 0)


class JournalModel:
    """The journal as a list of (group, what).  A round's entries stand before its hard state: a log
    may come back with a term that its hard state lost, and the term is then the log's."""

    def __init__(self) -> None:
        self.items: list[tuple[int, object]] = []
        self.durable = 0  # items that an fsync covered

    def stage(self, *writes: GroupWrite) -> int:
        """Add the items of a round and return their number."""
        for write in writes:
            if write.drop_from:
                self.items.append((write.group, write.drop_from))
            self.items.extend((write.group, entry) for entry in write.entries)
            if write.hard_state is not None:
                self.items.append((write.group, write.hard_state))
        return len(self.items)

    def finish(self, count: int = -1) -> None:
        """The first ``count`` items are durable, all of them by default."""
        self.durable = count if count >= 0 else len(self.items)

    def state(self, count: int) -> dict[int, GroupState]:
        groups: dict[int, GroupState] = {}
        for group, item in self.items[:count]:
            state = groups.setdefault(group, GroupState())
            if isinstance(item, Entry):
                state.entries.append(item)
            elif isinstance(item, HardState):
                state.hard_state = item
            else:
                del state.entries[item - 1:]
        for state in groups.values():
            if state.entries and state.entries[-1].term > state.hard_state.term:
                state.hard_state = HardState(state.entries[-1].term, 0)
        return groups

    def recovered_to(self, store: Store) -> int:
        """Return the number of items that the store holds; fails if they are no permitted
        prefix."""
        found = observed(store)
        for count in range(len(self.items), self.durable - 1, -1):
            if comparable(self.state(count)) == found:
                return count
        raise AssertionError(f"recovered {found}, which is none of the prefixes from "
                             f"{self.durable} to {len(self.items)} of {self.items}")


def comparable(groups: dict[int, GroupState]) -> dict:
    return {group: ([_plain(entry) for entry in state.entries], state.hard_state)
            for group, state in groups.items()}


def observed(store: Store) -> dict:
    """Everything the store says of its groups, read entry by entry from disk."""
    found = {}
    for group, restored in store.groups.items():
        last = restored.bounds.last_index
        entries = store.read_job(group, 1, last).execute() if last else ()
        if entries or restored.hard_state != HardState(0, 0):
            found[group] = ([_plain(entry) for entry in entries], restored.hard_state)
    return found


def _plain(entry: Entry) -> tuple:
    return (int(entry.kind), entry.index, entry.term, entry.partition, entry.base_offset,
            bytes(entry.payload))


def readable(store: Store, group: int, index: int) -> tuple | None:
    """The entry as the store serves it; None when it says that it is damaged."""
    try:
        entry, = store.read_job(group, index, index).execute()
    except CorruptRange:
        return None
    return _plain(entry)
