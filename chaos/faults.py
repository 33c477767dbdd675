"""Faults that the simulator and runs against real nodes have in common, with their names in both.

Contract.  The simulator registers a function for each ``kind`` (``simulator/faults/registry.py``),
and the nemeses have a class for each ``nemesis``.  Faults that only one of the two can cause are
not here.
"""

from __future__ import annotations

from typing import NamedTuple


class SharedFault(NamedTuple):
    """One fault that both cause."""

    kind: str  # in the simulator
    nemesis: str  # on the command line of a run, and in its schedules
    effect: str  # one sentence
    breaks: str  # the assumption that no longer holds


KILL = SharedFault(
    "kill", "kill", "A process ends at once and is started again.",
    "a process ends only when it wants to")
STOP = SharedFault(
    "stop", "stop", "A process ends in order: its groups are handed over first.",
    "a node that is stopped serves until it is gone")
POWER_LOSS = SharedFault(
    "power-loss", "power-loss", "A node ends at once and keeps only what it has synced.",
    "written bytes are on the disk")
PAUSE = SharedFault(
    "pause", "pause", "A process stops for a while and receives everything later.",
    "a live process makes progress")
ALONE = SharedFault(
    "partition-one", "alone", "One node is cut off from all others.",
    "every node reaches a majority")
HALVES = SharedFault(
    "partition-halves", "halves", "The nodes are cut into two sides that do not hear each other.",
    "every node reaches a majority")
ONE_WAY = SharedFault(
    "partition-one-way", "one-way", "A node is not heard, or does not hear; the other way works.",
    "a link works both ways or not at all")
RING = SharedFault(
    "majorities-ring", "ring", "Each node hears a majority, no two nodes the same one.",
    "two nodes that hear a majority hear the same one")
BRIDGE = SharedFault(
    "bridge", "bridge", "Two halves do not hear each other, and one node hears both.",
    "who reaches two nodes lets them reach each other")
NO_CLIENTS = SharedFault(
    "client-cut", "no-clients", "Clients do not reach some nodes, which reach each other.",
    "a leader that nodes reach is one that clients reach")
DELAY = SharedFault(
    "clog", "delay", "Messages of some links arrive late.",
    "a message arrives soon or not at all")
RESETS = SharedFault(
    "disconnect", "resets", "Connections between nodes break and are opened again.",
    "every message of an open connection arrives")
SLOW_DISK = SharedFault(
    "disk-slow", "slow-disk", "Writes and syncs take many times as long.",
    "disks of a cluster are of about one speed")
HUNG_DISK = SharedFault(
    "disk-hung", "hung-disk", "No write returns for a while, and the network works.",
    "a node that answers can write")
FULL_DISK = SharedFault(
    "disk-full", "full-disk", "Another program takes all disk space for a while.",
    "a write finds space")
FAILED_WRITE = SharedFault(
    "eio-write", "failed-disk", "A write fails, and the node ends.",
    "a write succeeds")
FAILED_SYNC = SharedFault(
    "eio-sync", "failed-disk", "A sync fails, and the node ends.",
    "a sync that succeeds has synced what earlier ones did not")
BIT_ROT = SharedFault(
    "bit-rot", "bit-rot", "A bit changes on a disk, where a good copy is left elsewhere.",
    "bytes on the disk are those that were written")
CLOCKS = SharedFault(
    "clock-drift", "clocks", "The clock of a node runs fast or slow, or jumps ahead.",
    "clocks of a cluster run at one rate")
MEMBERS = SharedFault(
    "members", "member-churn", "Replicas move to other nodes, also back to those they left.",
    "the members of a group stay")
LEADERS = SharedFault(
    "transfer", "leader-churn", "Leaders hand their groups over.",
    "a leader stays while it is well")
SWITCHES = SharedFault(
    "switch", "switch-churn", "Partitions of topics are switched to other groups.",
    "a partition stays in its group")
PLANS = SharedFault(
    "plan", "plan-churn", "Plans move replicas, and are paused, throttled and cancelled half way.",
    "one change of placement ends before the next one begins")

SHARED = (KILL, STOP, POWER_LOSS, PAUSE, ALONE, HALVES, ONE_WAY, RING, BRIDGE, NO_CLIENTS, DELAY,
          RESETS, SLOW_DISK, HUNG_DISK, FULL_DISK, FAILED_WRITE, FAILED_SYNC, BIT_ROT, CLOCKS,
          MEMBERS, LEADERS, SWITCHES, PLANS)
