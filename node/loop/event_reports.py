"""Reports of the core's events: in the log, and to the collector of changes.

Contract. ``report`` is called for each event of a round, before its effects. Changes of roles,
members, transfers and support go to the collector, which logs many of them as one. Rare events are
logged at once (``LOGGED_EVENTS``), with the group and its term.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.raft.status import Role

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.raft.ready import Event


class Changes(Protocol):
    """Collector of changes that are logged a moment later, many as one."""

    def support_changed(self, peer: int, kind: str, boot_epoch: int = 0, /) -> None: ...

    def role_changed(self, group: int, role: Role, leader: int, reason: str, /) -> None: ...

    def transfer_changed(self, group: int, target: int, state: str, /) -> None: ...

    def configuration_changed(self, group: int, /) -> None: ...

    def replica_removed(self, group: int, /) -> None: ...


class EventReports:
    """Reports of one node's events."""

    def __init__(self, core: MultiRaft, changes: Changes, log: logging.Logger):
        self._core = core
        self._changes = changes
        self._log = log

    def report(self, event: Event) -> None:
        """Log an event, or hand it to the collector of changes, as its kind requires."""
        if event.kind == "role_changed":
            role, term, leader, why = event.fields
            if self._log.isEnabledFor(logging.DEBUG):
                self._log_role(event.group, role, term, leader, why)
            self._changes.role_changed(event.group, role, leader, why)
        elif event.kind == "leadership_transfer":
            self._changes.transfer_changed(event.group, *event.fields)
        elif event.kind == "configuration_changed":
            self._changes.configuration_changed(event.group)
        elif event.kind == "replica_removed":
            self._changes.replica_removed(event.group)
        elif event.kind in LOGGED_EVENTS:
            self._log_event(event)
            if event.kind == "lease_changed":
                self._changes.support_changed(*event.fields)

    def _log_event(self, event: Event) -> None:
        """Log an event of the core. An event of a whole node has neither group nor term."""
        logged, values = LOGGED_EVENTS[event.kind], event.fields
        if isinstance(logged, dict):  # the second value chooses the event
            logged, values = logged[values[1]], (values[0], *values[2:])
        place = {} if event.group < 0 else {
            "group": event.group, "term": self._core.status.leader_hint(event.group)[1]}
        self._log.log(logged.level, logged.name,
                      extra={**place, **dict(zip(logged.fields, values, strict=True))})

    def _log_role(self, group: int, role: Role, term: int, leader: int, why: str) -> None:
        self._log.debug("replica_role_changed", extra={
            "group": group, "term": term, "role": role.name.lower(), "leader": leader,
            "reason": why})


class Logged(NamedTuple):
    """The event of the log that reports an event of the core."""

    level: int
    name: str
    fields: tuple[str, ...]  # names of the event's values


#: Kind of an event of the core -> event of the log, or one for each second value.
LOGGED_EVENTS: dict[str, Logged | dict[object, Logged]] = {
    "lease_changed": {
        "held": Logged(logging.INFO, "support_gained", ("peer", "boot_epoch")),
        "lost": Logged(logging.INFO, "support_lost", ("peer",)),
        "granted": Logged(logging.INFO, "support_granted", ("peer", "boot_epoch")),
        "withdrawn": Logged(logging.INFO, "support_withdrawn", ("peer",))},
    "peer_disk_space": {
        True: Logged(logging.INFO, "peer_disk_full", ("peer",)),
        False: Logged(logging.INFO, "peer_disk_space_freed", ("peer",))},
    "peer_restarted": Logged(logging.INFO, "peer_restarted", ("peer", "boot_epoch")),
    "trust_revoked": Logged(logging.WARNING, "peer_leadership_distrusted", ("peer",)),
    "snapshot_needed": Logged(logging.WARNING, "snapshot_needed",
                             ("peer", "next_index", "first_index")),
    "replica_quarantined": Logged(logging.ERROR, "replica_quarantined", ("reason",)),
    "head_recovery_started": Logged(logging.WARNING, "head_recovery_started", ("last_index",)),
    "replica_repaired": Logged(logging.INFO, "replica_repaired", ()),
}
