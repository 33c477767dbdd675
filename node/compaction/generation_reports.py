"""Reports of other nodes: which compactions by key their replicas have carried out.

Contract.  ``elsewhere`` and ``everywhere`` answer from the last rounds of questions, and note that
the next ``ROUNDS`` rounds ask about the partition.  ``ask`` is one round.  ``answer`` serves other
nodes.

Invariants.  A report counts for the round in which it came alone: a replica that was replaced by a
snapshot has carried out nothing.  ``everywhere`` counts what each member told in two rounds, one
after the other.  A replica that was replaced between them copies from members that had carried out
the compaction by then, or tells in the second round that it has not.

Theory.  The next COMPACT waits for the voters that are up; one that is down would hold compaction
back for as long as it is.  Tombstones wait for all members.  Else a member that still has an older
record of a key could take over from another one that the tombstone is gone.

A pass does not look each partition up again: one that waits is examined after some passes.  Its
reports have to be of the last rounds by then, so all rounds in between ask about it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from multiraft.wire.schema import Malformed
from node.compaction.compaction_pass import PASSES_PER_RETRY
from node.compaction.compaction_policy import GENERATION_MAX
from node.peers.errors import NoAnswer

if TYPE_CHECKING:
    from multiraft.types import Configuration
    from node.peers.bulk_channel import Bulk

OPERATION = "compactions"
#: Partitions of one request: each is looked up in a microsecond.
PARTITIONS_MAX = 1_024
#: Rounds that ask about a partition after it was looked up.  The last two of them come before it is
#: examined again, which is ``PASSES_PER_RETRY`` passes later, or one more.
ROUNDS = PASSES_PER_RETRY + 2

_U64 = (1 << 64) - 1


class Roles(Protocol):
    """The part of ``multiraft.raft.status_view.StatusView`` that is asked here."""

    def is_leader(self, group: int) -> bool: ...

    def is_up(self, node: int) -> bool: ...

    def configuration(self, group: int) -> Configuration | None: ...

    def has_group(self, group: int) -> bool: ...


class Consensus(Protocol):
    """The part of ``multiraft.raft.multi_raft.MultiRaft`` that is used here."""

    node: int

    @property
    def status(self) -> Roles: ...


class Store(Protocol):
    """The part of ``multiraft.storage.store.Store`` that is used here."""

    def carried_out(self, group: int, partition: int) -> int: ...


#: Group -> member -> partition -> generation.
Reports = dict[int, dict[int, dict[int, int]]]


class GenerationReports:
    """Reports to the leaders on this node, and answers to those on others."""

    def __init__(self, core: Consensus, store: Store, bulk: Bulk):
        self._core = core
        self._store = store
        self._bulk = bulk
        #: Group -> partition -> rounds that are still to ask about it.
        self._wanted: dict[int, dict[int, int]] = {}
        self._last: Reports = {}
        self._before: Reports = {}
        bulk.handlers[OPERATION] = self.answer

    # ---- what the leader knows ------------------------------------------------------------------

    def elsewhere(self, group: int, partition: int) -> int:
        """Return the lowest generation that the voters on other nodes that are up have carried out,
        by the last round; 0 = one has not told.  O(members)."""
        self._want(group, partition)
        found = self._core.status.configuration(group)
        if found is None:
            return 0
        voters = {*found.voters, *found.outgoing}
        return self._lowest(self._last, group, partition,
                            [each for each in voters if self._core.status.is_up(each)])

    def everywhere(self, group: int, partition: int) -> int:
        """Return the lowest generation that all members on other nodes have carried out, by the
        last two rounds; 0 = one has not told.  O(members)."""
        self._want(group, partition)
        found = self._core.status.configuration(group)
        if found is None:
            return 0
        members = found.members()
        return min(self._lowest(self._last, group, partition, members),
                   self._lowest(self._before, group, partition, members))

    def _lowest(self, reports: Reports, group: int, partition: int,
                members: Sequence[int]) -> int:
        known = reports.get(group, {})
        return min([known.get(member, {}).get(partition, 0) for member in members
                    if member != self._core.node], default=GENERATION_MAX)

    def _want(self, group: int, partition: int) -> None:
        self._wanted.setdefault(group, {})[partition] = ROUNDS

    # ---- questions and answers ------------------------------------------------------------------

    async def ask(self) -> None:
        """Ask the members of the groups that this node leads about the partitions that were looked
        up before the last rounds.  A member that does not answer is asked again in the next round.
        O(partitions), and a request for each ``PARTITIONS_MAX`` of a group, and member."""
        found: Reports = {}
        silent: set[int] = set()
        for group, partitions in self._taken_wanted().items():
            configuration = self._core.status.configuration(group)
            if configuration is None or not self._core.status.is_leader(group):
                continue
            found[group] = {
                member: await self._ask(member, group, partitions, silent)
                for member in configuration.members()
                if member != self._core.node and self._core.status.is_up(member)}
        self._before = {group: reports for group, reports in self._last.items() if group in found}
        self._last = found

    def _taken_wanted(self) -> dict[int, list[int]]:
        """Return the partitions of each group that this round asks about.  O(partitions)."""
        taken = {group: [*partitions] for group, partitions in self._wanted.items()}
        self._wanted = {group: left for group, partitions in self._wanted.items() if (left := {
            partition: rounds - 1 for partition, rounds in partitions.items() if rounds > 1})}
        return taken

    async def _ask(self, member: int, group: int, partitions: Sequence[int],
                   silent: set[int]) -> dict[int, int]:
        """Return the generations that a member has carried out, as far as it answers.  One that
        does not is ``silent``: others do not wait for it again in this round."""
        found: dict[int, int] = {}
        for at in range(0, len(partitions), PARTITIONS_MAX):
            asked = partitions[at:at + PARTITIONS_MAX]
            if member in silent:
                break
            try:
                frame = await self._bulk.ask(member, request_header(group, asked))
                found.update(zip(asked, read_reply(frame.header, len(asked)), strict=True))
            except (NoAnswer, Malformed):
                silent.add(member)  # the connection reports its own errors
        return found

    async def answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, Sequence]:
        """Return the generations that the replicas here have carried out.  Raises ``Malformed`` for
        an invalid request."""
        group, partitions = read_request(header)
        is_known = self._core.status.has_group(group)
        return {"op": OPERATION, "generations": [
            self._store.carried_out(group, partition) if is_known else 0
            for partition in partitions]}, []


def request_header(group: int, partitions: Sequence[int]) -> dict:
    """Return the header of a request about up to ``PARTITIONS_MAX`` partitions of a group."""
    return {"op": OPERATION, "group": group,
            "partitions": [*partitions]}


def read_request(header: Mapping[str, Any]) -> tuple[int, list[int]]:
    """Decode a request.  Raises ``Malformed``."""
    group, partitions = header.get("group"), header.get("partitions")
    if type(group) is not int or not 0 < group <= _U64:
        raise Malformed(f"group must be a whole number above 0, not {group!r:.40}")
    return group, _numbers("partitions", partitions)


def read_reply(header: Mapping[str, Any], count: int) -> list[int]:
    """Decode a reply about ``count`` partitions.  Raises ``Malformed``."""
    found = _numbers("generations", header.get("generations"))
    if len(found) != count or any(each > GENERATION_MAX for each in found):
        raise Malformed(f"{len(found)} generations of {count} partitions")
    return found


def _numbers(name: str, values: object) -> list[int]:
    if type(values) is not list or len(values) > PARTITIONS_MAX or not all(
            type(value) is int and 0 <= value <= _U64 for value in values):
        raise Malformed(f"{name} must be at most {PARTITIONS_MAX} whole numbers")
    return values
