"""Leaders and terms of each group, from the nodes' logs and from their answers to the run.

Contract.  Nodes that are started with ``--log-level debug`` log an event ``replica_role_changed``
per change: node, group, term, role, leader and reason.  A run that asks its nodes keeps
``leadership.jsonl``, whose lines are ``[time_us, group, term, leader]``, leader 0 = unknown.
``read_trace`` takes both from a run's folder; a ``LeaderTrace`` may also be built by hand.  Clocks
of nodes may differ: only what
does not depend on them is judged; the time of an election counts only
for the number of changes.

Theory.  A leader names itself, and every follower names the leader that it follows: in one term of
one group all of them must name the same node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from chaos.checkers.checker import Checker

LEADER = "leader"
#: Events of a node's log that the trace is read from.
EVENTS = ROLE_CHANGED, REMOVED, STARTED = "replica_role_changed", "replica_removed", "node_started"
#: Pattern of a node's log file: ``nodes/N/log`` of the run's folder.
LOGS = "nodes/*/log"
LEADERSHIP = "leadership.jsonl"
#: The run itself, in the place of a node; and the leader of a term for which none is known.
OBSERVER, NOBODY_KNOWS = -1, 0


class RoleChange(NamedTuple):
    """One change of a role."""

    time_us: int  # since the run began, by the node's clock; -1 = unknown
    node: int
    group: int
    term: int
    role: str
    leader: int  # leader that the replica knows; 0 = none


class LeaderTrace:
    """All changes of roles, in the order of each node's log."""

    def __init__(self, roles: Iterable[RoleChange] = ()):
        self.roles = list(roles)

    def nodes_that_led(self) -> dict[int, set[int]]:
        """Return group -> nodes that ever led it, without groups for which no leader is known.
        ``NOBODY_KNOWS`` is among the nodes when the leader of some term in between is unknown."""
        led: dict[int, dict[int, int]] = {}
        for role in self.roles:
            if leader_of(role):
                led.setdefault(role.group, {})[role.term] = leader_of(role)
        return {group: {*terms.values()} | self._gaps(terms) for group, terms in led.items()}

    @staticmethod
    def _gaps(terms: dict[int, int]) -> set[int]:
        return {NOBODY_KNOWS} if len(terms) <= max(terms) - min(terms) else set()

    def leader_changes(self, from_us: int) -> int:
        """Count terms with a leader that were first observed at or after ``from_us``, in groups
        that had a leader before.  Terms of unknown time count."""
        first: dict[int, int] = {}
        heard: dict[tuple[int, int], int] = {}
        for role in self.roles:
            if leader_of(role):
                first[role.group] = min(role.term, first.get(role.group, role.term))
                at = (role.group, role.term)
                heard[at] = min(role.time_us, heard.get(at, role.time_us))
        return sum(1 for (group, term), time_us in heard.items()
                   if term > first[group] and (time_us < 0 or time_us >= from_us))


def leader_of(role: RoleChange) -> int:
    """Return the leader that the node of this change names, itself if it leads; 0 = it knows
    none."""
    return role.node if role.role == LEADER else role.leader


class RoleTrace(Checker):
    """A19: two nodes lead one group in one term; a node follows another leader of a term than the
    one that leads it, or than another node follows; a node's term of a group goes back in its own
    log, unless its replica was removed or its directory wiped between.  Across a restart only terms
    in which the node led are compared: a term that a node learned is in its log before it is on its
    disk, so a failing disk or a crash may lose it.  O(changes)."""

    id, name = "A19", "raft-invariants"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._trace = LeaderTrace()

    def judge(self, trace: LeaderTrace) -> None:
        """Set the trace that ``on_end`` judges."""
        self._trace = trace

    def on_end(self, time_us: int) -> None:
        leaders: dict[tuple[int, int], int] = {}
        terms: dict[tuple[int, int], int] = {}
        led: dict[tuple[int, int], int] = {}  # the newest term, which is durable
        for role in self._trace.roles:
            if role.role == FRESH:
                terms = {place: term for place, term in terms.items() if not _is_of(place, role)}
                led = {place: term for place, term in led.items() if not _is_of(place, role)}
                continue
            if role.role == RESTARTED:
                terms = {place: led.get(place, 0) if _is_of(place, role) else term
                         for place, term in terms.items()}
                continue
            leader = leader_of(role)
            if leader:
                first = leaders.setdefault((role.group, role.term), leader)
                if first != leader:
                    self.found(f"group {role.group} has two leaders in term {role.term}: node "
                               f"{first} and node {leader}, says node {role.node}",
                               time_us=role.time_us)
            place = (role.node, role.group)
            if role.term < terms.get(place, 0):
                self.found(f"node {role.node} goes from term {terms[place]} of group {role.group} "
                           f"back to {role.term}", time_us=role.time_us)
            terms[place] = role.term
            if role.role == LEADER:
                led[place] = role.term

    def figures(self) -> dict[str, int]:
        return {"role_changes": len(self._trace.roles)} if self._trace.roles else {}


#: Event after which a replica starts with an empty state in a trace; group -1 = all of the node's.
FRESH = "fresh"
#: Event of a node that restarts with its disk's contents.
RESTARTED = "restarted"


def _is_of(place: tuple[int, int], role: RoleChange) -> bool:
    return place[0] == role.node and role.group in (-1, place[1])


def read_trace(folder: Path, began: str = "") -> LeaderTrace | None:
    """Return the trace in a run's folder: roles that nodes logged, and leaders that the run
    observed. None when neither exists.

    ``began``: start of the run, ISO 8601, as in ``run.json``; without it, the times of logged roles
    are unknown (-1)."""
    began_us = _microseconds(began) if began else None
    roles: list[RoleChange] = []
    for path in sorted(folder.glob(LOGS)):
        with path.open(encoding="utf-8", errors="replace") as file:
            roles.extend(_roles(file, began_us))
    roles.extend(_observed(folder / LEADERSHIP))
    return (
        LeaderTrace(roles) if any(role.role not in (FRESH, RESTARTED) for role in roles) else None
    )


def _observed(path: Path) -> Iterator[RoleChange]:
    """Yield the leaders in the file of those that the run observed, as changes of a follower
    ``OBSERVER``. Nothing without the file; an incomplete last line is left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                time_us, group, term, leader = json.loads(line)
                yield RoleChange(time_us, OBSERVER, group, term, "follower", leader)


def _roles(lines: Iterable[str], began_us: int | None) -> Iterator[RoleChange]:
    for line in lines:
        if not any(event in line for event in EVENTS):
            continue
        try:
            said = json.loads(line)
            yield from _role(said, began_us)
        except (ValueError, KeyError, TypeError):
            continue  # a line that the node's end cut off, or that is not the node's


def _role(said: dict, began_us: int | None) -> Iterator[RoleChange]:
    at_us = -1 if began_us is None else _microseconds(said["at"]) - began_us
    if said["event"] == ROLE_CHANGED:
        yield RoleChange(
            at_us, said["node"], said["group"], said["term"], said["role"], said["leader"]
        )
    elif said["event"] == REMOVED:
        yield RoleChange(at_us, said["node"], said["group"], 0, FRESH, 0)
    elif said["event"] == STARTED:  # a new data directory, or an existing one
        life = FRESH if said.get("boot_epoch") == 1 else RESTARTED
        yield RoleChange(at_us, said["node"], -1, 0, life, 0)


def _microseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1e6)


CHECKERS = (RoleTrace,)
