"""The applier: commits, events and confirmed reads of a round, carried to metadata, pending appends
and long polls.

Contract. Only the driver of a round calls it, in the order of ``Ready``: ``observe`` before
``apply``, ``answer`` at the end. It reads no clock and writes no log: the driver passes the time
in, and ``EventReports`` reports events. The state of data groups is in their ``PartitionTail``,
which ``MultiRaft.applied`` advances; entries of the metadata group go through ``metadata_log``.

Invariants. Entries of a group are applied in index order without gaps. A pending append is
acknowledged only if this node has led its group without interruption since the append was proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Protocol

from multiraft.raft.status import Role
from multiraft.types import METADATA_GROUP

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.raft.ready import Event
    from multiraft.storage.store import Store


class Metadata(Protocol):
    """The log of the metadata group."""

    def apply(self, first: int, last: int) -> None: ...

    def lead(self) -> None: ...

    def role_changed(self, leads: bool) -> None: ...


class Appends(Protocol):
    """Appends that wait for their acknowledgement."""

    @property
    def earliest_ms(self) -> int: ...

    def committed(self, group: int, index: int) -> None: ...

    def durable(self, group: int, index: int) -> None: ...

    def groups_waiting_for_durable(self) -> Iterable[int]: ...

    def lost(self, group: int) -> None: ...

    def expire(self, now_ms: int) -> None: ...

    def stop(self) -> None: ...


class Fetches(Protocol):
    """Fetches that wait for records."""

    @property
    def earliest_ms(self) -> int: ...

    @property
    def due(self) -> Collection[object]: ...

    def committed(self, group: int) -> None: ...

    def retry_due(self, now_ms: int) -> None: ...

    def stop(self) -> None: ...


class Confirmations(Protocol):
    """Reads that wait until a majority confirms the leader."""

    @property
    def earliest_ms(self) -> int: ...

    @property
    def waiting(self) -> Collection[object]: ...

    def committed(self, group: int) -> None: ...

    def ready(self, reads: list) -> None: ...

    def lost(self, group: int) -> None: ...

    def expire(self, now_ms: int) -> None: ...

    def stop(self) -> None: ...


class Answers(Protocol):
    """Sessions with answers that wait for the round's end."""

    @property
    def to_flush(self) -> Collection[object]: ...

    def flush(self) -> None: ...


class ReplicaChanges(Protocol):
    """Creation and removal of replicas."""

    due: bool

    def reconcile(self) -> None: ...

    def on_create_requested(self, group: int, incarnation: int, sender: int, term: int,
                            index: int) -> None: ...

    def on_removed(self, group: int) -> None: ...


class EventReports(Protocol):
    """Reports of events to operators."""

    def report(self, event: Event) -> None:
        """Report an event, before its effects."""


class RoleWaiters(Protocol):
    """Tasks that wait for a change of a known leader."""

    def notify(self) -> None: ...


class AppliedWaiters(Protocol):
    """Tasks that wait until an entry of a group is applied here."""

    @property
    def waiting(self) -> Collection[object]: ...

    def notify(self, group: int) -> None: ...


class Applier:
    """The consumer of events, commits and durable indexes of one node's rounds."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: Metadata,
                 pending: Appends, fetch_handler: Fetches, read_index_requests: Confirmations,
                 sessions: Answers, roles: RoleWaiters, replicas: ReplicaChanges,
                 reports: EventReports, applied: AppliedWaiters,
                 members_changed: Callable[[int], None] = lambda _group: None,
                 leads_changed: Callable[[], None] = lambda: None,
                 on_snapshot_offer: Callable[[int, int], None] = lambda _group, _leader: None,
                 lead: Callable[[int], None] = lambda _group: None,
                 note_applied: Callable[[int], None] = lambda _group: None):
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._pending = pending
        self._fetch_handler = fetch_handler
        self._read_index_requests = read_index_requests
        self._sessions = sessions
        self._roles = roles
        self._replicas = replicas
        self._reports = reports
        self._applied = applied
        self._members_changed = members_changed  # reports the members of groups led here
        self._leads_changed = leads_changed  # this node has become leader of a group
        self._on_snapshot_offer = on_snapshot_offer  # (group, leader)
        self._lead = lead  # (group whose leader this node became)
        self._note_applied = note_applied  # (group of which entries were applied)
        self.elections = 0

    def observe(self, events: list) -> None:
        """Process the events of a round. Pending appends and confirmations of a group that this
        node does not lead any longer end; its long polls are retried. A quarantine is recorded in
        the store, so that it survives restarts."""
        for event in events:
            self._reports.report(event)
            if event.kind == "role_changed":
                self._role(event.group, event.fields[0] is Role.LEADER)
            elif event.kind == "configuration_changed":
                self._members_changed(event.group)
            elif event.kind == "replica_requested":
                self._replicas.on_create_requested(event.group, *event.fields)
            elif event.kind == "replica_removed":
                self._replicas.on_removed(event.group)
                self._fetch_handler.committed(event.group)  # redirects its long polls to the leader
            elif event.kind == "snapshot_offered":
                self._on_snapshot_offer(event.group, event.fields[0])
            elif event.kind == "replica_repaired":
                self._replicas.due = True
            elif event.kind == "replica_quarantined":
                self._store.quarantine(event.group, event.fields[0])
                self._fetch_handler.committed(event.group)  # answers its long polls: QUARANTINED

    def _role(self, group: int, leads: bool) -> None:
        # Use the role of the event, not the present one: a leader that was deposed and elected
        # again in between must not acknowledge the entries of its earlier term.
        self._roles.notify()
        if leads:
            self.elections += 1
            self._members_changed(group)
            self._leads_changed()
            self._lead(group)
        else:
            self._pending.lost(group)
            self._read_index_requests.lost(group)
            self._fetch_handler.committed(group)  # answers its long polls: NOT_LEADER
        if group == METADATA_GROUP:
            self._metadata_log.role_changed(leads)

    def apply(self, committed: list) -> None:
        """Apply committed ranges, which are durable on this node. Acknowledge the appends that they
        cover, and wake the long polls, reads and tasks that wait for them."""
        for group, first, last in committed:
            if group == METADATA_GROUP:
                self._metadata_log.apply(first, last)
            self._core.applied(group, last)
            self._note_applied(group)
            if group == METADATA_GROUP:
                self._metadata_log.lead()
                self._replicas.due = True
            self._pending.committed(group, last)
            self._fetch_handler.committed(group)
            if self._applied.waiting:
                self._applied.notify(group)
            if self._read_index_requests.waiting:
                self._read_index_requests.committed(group)

    def confirmed(self, reads: list) -> None:
        """Release the reads of groups whose leadership a majority has confirmed, after this round's
        commits."""
        self._read_index_requests.ready(reads)

    def durable(self) -> None:
        """Acknowledge appends with acks=leader that have become durable on this node. O(groups with
        such pending appends)."""
        for group in self._pending.groups_waiting_for_durable():
            if not self._core.status.has_group(group):
                continue  # removed in the last round; the next round's event fails its appends
            self._pending.durable(group, self._core.status.durable_index(group))

    @property
    def answers_wait(self) -> bool:
        """True if sessions hold replies that were not written to their sockets yet."""
        return bool(self._sessions.to_flush)

    def stop(self) -> None:
        """Refuse long polls, fail unconfirmed reads, and answer pending appends as ambiguous, then
        write the replies: the node is stopping."""
        self._pending.stop()
        self._read_index_requests.stop()
        self._fetch_handler.stop()
        self._sessions.flush()

    def answer(self, now_ms: int) -> None:
        """Create and remove replicas where that is due, expire deadlines, retry long polls that
        were woken, and write all replies to the sockets."""
        if self._replicas.due:
            self._replicas.reconcile()
        if self._pending.earliest_ms <= now_ms:
            self._pending.expire(now_ms)
        if self._read_index_requests.earliest_ms <= now_ms:
            self._read_index_requests.expire(now_ms)
        if self._fetch_handler.due or self._fetch_handler.earliest_ms <= now_ms:
            self._fetch_handler.retry_due(now_ms)
        if self._sessions.to_flush:
            self._sessions.flush()
