"""Planted bugs: mistakes that others have made, put into the running code to see them caught.

Contract.  ``planted(name)`` is a context in which the bug is in; outside of it the code is as
shipped, which contains no switch for any of this.  A bug is one replacement in the source of one
function; when the text to replace is not there (any more), planting raises ``StaleBug``, so that a
bug cannot silently become none.

Theory.  A simulator that cannot fail proves nothing (mutation testing).  The mistakes come from the
catalogues of reported Raft and storage bugs: acknowledging before the sync, counting one's own
memory, committing old terms by counting (figure 8), votes not persisted, and so on.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import NamedTuple


class StaleBug(Exception):
    """The code that a bug replaces is not there any more."""


class Bug(NamedTuple):
    """Replace ``old`` by ``new`` in the source of ``function`` (dotted within ``module``)."""

    module: str
    function: str
    old: str
    new: str
    why: str  # what it breaks, for people
    faults: tuple[str, ...] = ()  # what it takes to be seen; empty = whatever the seed plays with


#: Rot shows what a damaged replica may do wrong only while others are away.
ROT = ("bit-rot", "bit-rot", "bit-rot", "isolate-leader", "partition-one", "kill")

#: ... or while what it forgot is all that was left of a majority.
ROT_AND_POWER = ("bit-rot", "bit-rot", "bit-rot", "isolate-leader", "isolate-leader",
                 "partition-one", "power-loss", "double-crash", "cluster-power")

BUGS: dict[str, Bug] = {
    "leader-counts-own-memory": Bug(
        "multiraft.group", "Group.durable_of", "return self.log.durable_index",
        "return self.log.last_index",
        "a leader counts entries that its own disk does not have (d-engine #329)"),
    "ack-before-sync": Bug(
        "multiraft.group", "Group.acknowledge", "min(self.verified, log.durable_index)",
        "self.verified", "a follower acknowledges what is in memory (yugabyte #32875)"),
    "commit-old-term-by-counting": Bug(
        "multiraft.replication", "maybe_commit", "or index < group.term_start", "",
        "an entry of an earlier term is committed by counting (figure 8, LogCabin #44)"),
    "vote-not-persisted": Bug(
        "multiraft.storage.store", "_append_lane_entries", "term, vote = write.hard_state",
        "term, vote = write.hard_state[0], 0",
        "the vote is forgotten by a restart (hashicorp #661, PySyncObj #84)"),
    "grant-before-sync": Bug(
        "multiraft.multiraft", "MultiRaft._release",
        "ready.messages_after_write.extend(messages)", "ready.messages.extend(messages)",
        "a vote leaves before it is durable"),
    "vote-for-shorter-log": Bug(
        "multiraft.log", "GroupLog.up_to_date",
        "return (last_term, last_index) >= (self.last_term, self.last_index)", "return True",
        "a voter elects a leader whose log is behind its own (paper 5.4.1)"),
    "append-without-match": Bug(
        "multiraft.replication", "on_append",
        "if not log.matches(prev, append.prev_term):", "if prev > log.last_index:",
        "entries are appended behind another log (paper 5.3)"),
    "commit-uncapped": Bug(
        "multiraft.replication", "on_append", "min(append.commit, group.verified)",
        "min(append.commit, log.last_index)",
        "a follower commits a tail that it has not compared (ra #508, S4)"),
    "tail-not-undone": Bug(
        "multiraft.tail", "PartitionTail.truncate", "self._undo(record)", "pass",
        "tail state keeps what a dropped suffix did"),
    "window-lost-on-restart": Bug(
        "multiraft.storage.recovery", "_Recovery._replay", "return \"\"",
        "tail._windows.clear(); return \"\"",
        "producers are forgotten by a restart: retries are doubled or refused for ever"),
    "drop-not-written": Bug(
        "multiraft.storage.store", "_append_lane_entries", "write.drop_from))", "1 << 40))",
        "a dropped suffix comes back after a restart"),
    "aba": Bug(
        "multiraft.log", "GroupLog.truncate",
        "(sequence, min(last, first_gone - 1))", "(sequence, last)",
        "a completed write vouches for entries that replaced the written ones (etcd, S28e)"),
    "recovery-trusts-page-cache": Bug(
        "multiraft.storage.recovery", "_Recovery._settle", "if begin < end:", "if False:",
        "what recovery read was never synced (Rebello et al., ATC 2020)"),
    "reader-sees-uncommitted": Bug(
        "multiraft.tail", "PartitionTail.high_watermark",
        "self.applied_state(partition).next_offset", "self.tail_state(partition).next_offset",
        "readers see records that may be lost (redpanda #14794)"),
    "sleep-with-lagging-member": Bug(
        "multiraft.progress", "Progress.has_all",
        "return self.match == last_index and self.commit_known == commit and not self.doubt",
        "return True",
        "a group falls asleep while a member lacks entries (TiKV #9022)"),
    "lost-wake-up": Bug(
        "multiraft.neighbours", "Neighbours.lease_held", "self._queue(node)", "pass",
        "a member that returns is not served (TiKV #16429)"),
    "replaced-without-sync": Bug(
        "multiraft.storage.envelope", "replace_file", "True)", "False)",
        "a file's name is durable before its contents"),
    "counts-itself-when-removed": Bug(
        "multiraft.replication", "maybe_commit",
        "membership.committed(group.configuration, group.durable_of)",
        "membership.committed(group.configuration._replace(voters=tuple(\n"
        "        {*group.configuration.voters, group.host.node})), group.durable_of)",
        "a leader that is no voter any more counts its own disk (etcd, confchange_v1_remove_leader)"
    ),
    "two-voters-at-once": Bug(
        "multiraft.membership", "entered",
        "return Configuration(voters, learners, configuration.voters)",
        "return Configuration(voters, learners)",
        "voters change in one step: the two majorities need not overlap (thesis 4.1)"),
    "old-majority-is-not-asked": Bug(
        "multiraft.membership", "committed", "if configuration.outgoing:", "if False:",
        "a joint configuration commits by the new majority alone"),
    "configuration-when-committed": Bug(
        "multiraft.replication", "_accept",
        "group.adopt(entry.index, membership.decode(entry.payload))", "pass",
        "a follower does not take the configuration that is in its log (thesis 4.1)"),
    "configuration-outlives-its-entry": Bug(
        "multiraft.group", "Group.truncate", "if self.configuration_index >= first_gone:",
        "if False:", "a dropped suffix leaves its configuration in force (thesis 4.1)"),
    "acknowledgement-of-an-earlier-life": Bug(
        "multiraft.replication", "on_append_reply", "if reply.stamp < member.since:", "if False:",
        "what a replica said before it was removed counts for the one that came after it"),
    "tombstone-forgets-the-vote": Bug(
        "multiraft.storage.group_log", "GroupLog.bury",
        "self.hard_state, self.barred = left.hard_state, left.barred", "self.barred = left.barred",
        "a replica that is added again votes a second time in a term (S28f)"),
    "read-without-confirmation": Bug(
        "multiraft.reads", "_confirm",
        "if membership.supported(group.configuration, answered):", "if True:",
        "a leader answers linearizable reads without asking whether it still leads"),
    "read-confirmed-before-it-was-asked": Bug(
        "multiraft.reads", "_confirm", ">= reads.stamp", ">= 0",
        "any earlier answer of a member confirms a read"),
    "votes-while-damaged": Bug(
        "multiraft.election", "on_vote_request", "if group.quarantined or trusting or",
        "if trusting or", "a replica that lost its log's end votes (Alagappan et al., FAST 2018)",
        ROT),
    "doubter-is-counted": Bug(
        "multiraft.group", "Group.durable_of", "0 if member.doubt else member.match",
        "member.match", "a leader counts who may have forgotten what it acknowledged",
        ROT_AND_POWER),
    "lifted-early": Bug(
        "multiraft.storage.repairer", "Repairer.step",
        "if log.doubtful and not core.is_cleared(group):", "if False:",
        "a replica comes back before its leader has cleared it", ROT),
    "lift-settles-the-future": Bug(
        "multiraft.storage.group_log", "GroupLog.has_settled",
        "first <= begin and max(begin, end) <= last", "True",
        "damage that comes after a repair is taken for what was repaired", ROT),
    "damage-forgotten-by-restart": Bug(
        "multiraft.storage.recovery", "_Recovery._judge_damage", "log.doubt(why)", "pass",
        "a hole in the lane is taken for the end of nobody's log", ROT),
    "unknown-producer-anywhere": Bug(
        "multiraft.tail", "PartitionTail._original", "if info.base_sequence != 0:", "if False:",
        "a producer's second batch is accepted before its first"),
    "failed-sync-counts": Bug(
        "chaos.simulator.disk", "DiskWorker._begin",
        "failed = True\n        done = self._ending(error, no_room)", "pass",
        "a driver goes on after a failed write or sync, as a retry would let it (rostam #94)",
        ("eio-sync", "eio-sync", "eio-write", "power-loss", "isolate-leader")),
    "hung-disk-vouches": Bug(
        "multiraft.leases", "Liveness.answer", "if not self._healthy:", "if False:",
        "a node whose disk hangs keeps its leases: its groups stand still (hashicorp/raft #503)",
        ("disk-hung",)),
    "no-room-reserved": Bug(
        "multiraft.storage.lane", "Segment.create", "if reserve:", "if False:",
        "a segment finds no room in the middle of a gathered write",
        ("disk-full", "disk-full", "kill")),
    "scrub-trusts-any-entry": Bug(
        "multiraft.storage.scrub", "ScrubPlan._suspect", "if self.durable <= mark",
        "if 0 <= mark", "what a misdirected write left is taken for what belongs there",
        ("misdirected", "misdirected", "misdirected", "kill")),
    "full-disk-is-the-end": Bug(
        "chaos.simulator.disk", "DiskWorker._create", "if not is_full(error):", "if True:",
        "no room for a segment stops the node instead of its records",
        ("disk-full", "disk-full", "kill")),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The bug is in while the context lasts; None plants nothing.  Raises ``StaleBug``."""
    if name is None:
        yield
        return
    bug = BUGS[name]
    target = _function(bug)
    shipped = target.__code__
    target.__code__ = _mutated(bug, target)
    try:
        yield
    finally:
        target.__code__ = shipped


def _function(bug: Bug) -> FunctionType:
    found: object = importlib.import_module(bug.module)
    for part in bug.function.split("."):
        found = getattr(found, part)
    assert isinstance(found, FunctionType), f"{bug.module}.{bug.function} is {found!r}"
    return found


def _mutated(bug: Bug, target: FunctionType):
    """The function's code with the bug in it."""
    source = textwrap.dedent(inspect.getsource(target))
    if bug.old not in source:
        raise StaleBug(f"{bug.module}.{bug.function} does not contain {bug.old!r}")
    namespace = dict(target.__globals__)
    code = compile("from __future__ import annotations\n" + source.replace(bug.old, bug.new),
                   f"<planted in {bug.function}>", "exec")
    exec(code, namespace)
    return namespace[target.__name__].__code__
