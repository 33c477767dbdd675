"""Who led what: by the nodes' own logs, and by what they said when they were asked.

Contract.  Nodes that are started with ``--log-level debug`` write a line ``role`` per change: node,
group, term, role, leader and reason.  A run that asks its nodes keeps ``leadership.jsonl``, whose
lines are ``[time_us, group, term, leader]``, leader 0 = nobody knows.  ``read_trace`` takes both
from a run's folder; a ``Trace`` may also be built by hand.  Clocks of nodes may differ: only what
does not depend on them is judged; when a leader was elected counts only for the number of changes.

Theory.  A leader says so itself, and every follower names the leader that it believes: both must
be the same node in one term of one group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from chaos.checkers.checker import Checker

ROLE, LEADER = "role", "leader"
#: A file of a node's log: ``nodes/N/log`` of the run's folder.
LOGS = "nodes/*/log"
LEADERSHIP = "leadership.jsonl"
#: The run itself, in the place of a node; and the leader of a term of which nobody heard.
OBSERVER, NOBODY_KNOWS = -1, 0


class Role(NamedTuple):
    """One change of a role."""

    time_us: int  # since the run began, by the node's clock; -1 = unknown
    node: int
    group: int
    term: int
    role: str
    leader: int  # 0 = it knows none


class Trace:
    """All changes of roles, in the order of each node's log."""

    def __init__(self, roles: Iterable[Role] = ()):
        self.roles = list(roles)

    def nodes_that_led(self) -> dict[int, set[int]]:
        """Nodes that led each group, ever; ``NOBODY_KNOWS`` among them when there was a term of
        which nobody knows who led it."""
        led: dict[int, dict[int, int]] = {}
        for role in self.roles:
            if leader_of(role):
                led.setdefault(role.group, {})[role.term] = leader_of(role)
        return {group: {*terms.values()} | self._gaps(terms) for group, terms in led.items()}

    @staticmethod
    def _gaps(terms: dict[int, int]) -> set[int]:
        return {NOBODY_KNOWS} if len(terms) <= max(terms) - min(terms) else set()

    def leader_changes(self, from_us: int) -> int:
        """Terms with a leader, first heard of at or after ``from_us``, in groups that had a leader
        before; those of which nobody knows when they were are counted."""
        first: dict[int, int] = {}
        heard: dict[tuple[int, int], int] = {}
        for role in self.roles:
            if leader_of(role):
                first[role.group] = min(role.term, first.get(role.group, role.term))
                at = (role.group, role.term)
                heard[at] = min(role.time_us, heard.get(at, role.time_us))
        return sum(1 for (group, term), time_us in heard.items()
                   if term > first[group] and (time_us < 0 or time_us >= from_us))


def leader_of(role: Role) -> int:
    """Who leads, by this node's word; 0 = it does not know."""
    return role.node if role.role == LEADER else role.leader


class RoleTrace(Checker):
    """A19: two nodes lead one group in one term; a node believes in another leader of a term than
    the one that leads it, or than another node believes in; a node's term of a group goes back in
    its own log, unless its replica was removed or its directory wiped between.  Over a restart that
    is asked of terms only in which it led: that it heard of one is in its log before it is on its
    disk, and a disk that fails then, or a crash, takes the term with it.  O(changes)."""

    id, name = "A19", "raft-invariants"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._trace = Trace()

    def judge(self, trace: Trace) -> None:
        """This is the trace of the run."""
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


#: What begins a replica's life anew in a trace; group -1 = all of the node's.
FRESH = "fresh"
#: A node begins to run again, with what is on its disk.
RESTARTED = "restarted"


def _is_of(place: tuple[int, int], role: Role) -> bool:
    return place[0] == role.node and role.group in (-1, place[1])


def read_trace(folder: Path, began: str = "") -> Trace | None:
    """The trace of a run's folder; None when no node told of its roles.  ``began``: when the run
    began, ISO 8601, as ``run.json`` has it."""
    began_us = _microseconds(began) if began else None
    roles: list[Role] = []
    for path in sorted(folder.glob(LOGS)):
        with path.open(encoding="utf-8", errors="replace") as file:
            roles.extend(_roles(file, began_us))
    roles.extend(_observed(folder / LEADERSHIP))
    return Trace(roles) if any(role.role not in (FRESH, RESTARTED) for role in roles) else None


def _observed(path: Path) -> Iterator[Role]:
    """What the run heard when it asked: as one more follower."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                time_us, group, term, leader = json.loads(line)
                yield Role(time_us, OBSERVER, group, term, "follower", leader)


def _roles(lines: Iterable[str], began_us: int | None) -> Iterator[Role]:
    for line in lines:
        if '"role"' not in line and '"replica removed"' not in line and '"ready"' not in line:
            continue
        try:
            said = json.loads(line)
            yield from _role(said, began_us)
        except (ValueError, KeyError, TypeError):
            continue  # a line that the node's end cut off, or that is not the node's


def _role(said: dict, began_us: int | None) -> Iterator[Role]:
    at_us = -1 if began_us is None else _microseconds(said["at"]) - began_us
    if said["event"] == ROLE:
        yield Role(at_us, said["node"], said["group"], said["term"], said["role"], said["leader"])
    elif said["event"] == "replica removed":
        yield Role(at_us, said["node"], said["group"], 0, FRESH, 0)
    elif said["event"] == "ready":  # a new data directory, or one that was there
        life = FRESH if said.get("boot_epoch") == 1 else RESTARTED
        yield Role(at_us, said["node"], -1, 0, life, 0)


def _microseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1e6)


CHECKERS = (RoleTrace,)
