"""Log events about changes of the cluster: nodes lost and returned, majorities, leadership.

Contract.  The applier reports what the core's events say, in their order; each report is O(1).  A
task writes the lines ``PAUSE_S`` after the first report, for everything that was reported by then:
one line per node that was lost or returned, one for all groups that lost their majority, and one
for all groups whose leadership changed between the same nodes for the same reason.  So the failure
of a node that leads a thousand groups is a few lines, and an idle node has no work here.

A node is *lost* when it neither supports this node nor is supported by it, and one of the two was
the case before: a node that was never heard of is not lost.  A node that announced its stop, or
that was removed from the cluster, is not lost either.

Majorities are examined once after the start, when a node was lost, and when groups without a
majority may have regained it.  That is O(groups), in slices of ``SLICE`` groups per turn of the
scheduler.

A node whose own loop or disk stalls sends no heartbeats and extends no support, so it loses all
others at once.  The reason then names the stall, because the others are likely to be well.

Theory.  Leadership is reported by the node that gains it and by the node that had it.  The reason
of a loss is the core's own.  The reason of a gain is a transfer, revoked trust, or the state of the
leader before: the core gives none when a replica campaigns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from multiraft.raft import joint_quorum
from multiraft.raft.status import Role
from multiraft.types import Configuration
from node.clock import monotonic_ms

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: Time in which changes are collected before they are logged, in seconds.
PAUSE_S = 1.0
#: Leases from the addition of the replicas until their majorities are examined for the first time:
#: by then a peer that is up has answered heartbeats, also one that was started a little later.
START_LEASES = 5
#: Leases before a loss in which a stall of this node explains it: support lasts one, and the loop
#: that stalled learns of its end late.
STALL_LEASES = 2
#: Groups that are examined per turn of the scheduler: well below a millisecond.
SLICE = 64
#: Groups that one line about leadership names, in a list of about 3 KiB.
GROUPS_PER_LINE = 500
#: Lines about leadership that moved between the same nodes for the same reason, at a time.  The
#: last one counts all the rest; ``replica_role_changed`` names each group.
LINES_PER_CAUSE = 10
#: Groups and nodes that a line about majorities names.
NAMED_MAX = 10
#: Reasons of the core for a campaign, in words; its other reasons concern one election only.
_CAMPAIGN_REASONS = {
    "transfer": "transfer by node {}",
    "trust in the leader revoked": "trust in node {} revoked",
    "leader does not lead": "node {} does not lead it any longer",
    "forced recovery": "forced recovery",
}
#: Reasons of the core for which a leader follows a higher term.  During a transfer that term is the
#: transferee's; every other reason ends the leadership before the transfer does.
_HIGHER_TERM_REASONS = ("", "higher term", "digest")
_HIGHER_TERM = "higher term"
_SILENT = ("its heartbeats stopped: it hangs, is cut off, or its machine is down, or this node is "
           "cut off")
_TOO_FEW = "too few of their voters are up, or this node is cut off"


class Endings(Protocol):
    """The part of the liveness thread that knows how another node's process ended, and whether this
    node stalled."""

    def has_announced_stop(self, peer: int, boot_epoch: int) -> bool: ...

    def is_refusing(self, peer: int) -> bool: ...

    def own_stall_since(self, since_ms: int) -> str: ...


@dataclass(slots=True)
class _Loss:
    """One node that is down, or was down within the collected time."""

    boot_epoch: int  # when it was lost
    lost_ms: int
    groups_leading_here: int  # at that time
    logged: bool = False
    returned_ms: int = 0  # 0 = it is still down
    returned_epoch: int = 0  # its boot epoch when it returned


@dataclass(slots=True)
class _Change:
    """Leadership of one group, as it was before the first of the collected changes."""

    leader_before: int
    reason: str


class ChangeReports:
    """Collector and writer of the events about changes of one node's cluster.  ``is_member(node)``
    is True for nodes of the cluster."""

    def __init__(self, core: MultiRaft, endings: Endings, is_member: Callable[[int], bool],
                 log: logging.Logger, lease_ms: int, pause_s: float = PAUSE_S):
        self._core = core
        self._endings = endings
        self._is_member = is_member
        self._log = log
        self._lease_ms = lease_ms
        self._pause_s = pause_s
        self._reported = trio.Event()
        self._has_replicas = trio.Event()
        self._writing = trio.Lock()
        # ---- nodes
        self._supporting: dict[int, int] = {}  # peer that supports this node -> its boot epoch
        self._supported: dict[int, int] = {}  # peer that this node supports -> its boot epoch
        self._down: dict[int, _Loss] = {}
        #: (peer, boot epoch) whose lines are due -> its loss, oldest first.
        self._changed_peers: dict[tuple[int, int], _Loss] = {}
        # ---- majorities
        self._without_majority: set[int] = set()
        self._is_scan_due = False
        # ---- leadership
        self._led: set[int] = set()
        self._leaders: dict[int, int] = {}  # group -> its last known leader
        self._reasons: dict[int, str] = {}  # group without a leader -> reason to campaign
        self._transferees: dict[int, int] = {}  # group -> target of the transfer under way
        self._changes: dict[int, _Change] = {}

    # ---- reports of the applier ------------------------------------------------------------------

    def support_changed(self, peer: int, kind: str, boot_epoch: int = 0) -> None:
        """Record a lease event about ``peer``; the peer is up while it supports this node or is
        supported by it."""
        known = self._supporting if kind in ("held", "lost") else self._supported
        epoch_before = known.get(peer, 0)
        was_up = self._is_up(peer)
        if kind in ("held", "granted"):
            known[peer] = boot_epoch
            if was_up:
                return
            loss = self._down.pop(peer, None)
            if loss is not None:
                loss.returned_ms, loss.returned_epoch = monotonic_ms(), boot_epoch
                self._changed_peers.setdefault((peer, loss.boot_epoch), loss)
                self._request()
            elif self._without_majority:
                self._request_examination()
            return
        known.pop(peer, None)
        if was_up and not self._is_up(peer):
            # A process that returned and is lost again before the lines are written was lost once.
            key = (peer, epoch_before)
            loss = self._changed_peers.get(key) or _Loss(
                epoch_before, monotonic_ms(), self._core.status.led_count)
            loss.returned_ms = loss.returned_epoch = 0
            self._down[peer] = self._changed_peers[key] = loss
            self._request()

    def role_changed(self, group: int, role: Role, leader: int, reason: str) -> None:
        """Record the role and the leader (0 = none known) of the replica of ``group`` here."""
        before = self._leaders.get(group, 0)
        if role is Role.LEADER:
            self._led.add(group)
            self._note(group, before,
                       self._reasons.pop(group, "") or self._reason_to_campaign(before))
        elif group in self._led:
            self._led.discard(group)
            target = self._transferees.pop(group, 0)
            self._note(group, self._core.node,
                       f"transfer to node {target}" if target and reason in _HIGHER_TERM_REASONS
                       else reason or _HIGHER_TERM)
        if leader:
            self._leaders[group] = leader
            self._reasons.pop(group, None)
        elif reason in _CAMPAIGN_REASONS:
            self._reasons[group] = _CAMPAIGN_REASONS[reason].format(before)
        elif self._reasons.get(group, "").startswith("transfer"):
            del self._reasons[group]  # the election that the transfer began was not won

    def transfer_changed(self, group: int, target: int, state: str) -> None:
        """Record that a leader here began to transfer ``group``, or that the transfer failed."""
        if state == "started":
            self._transferees[group] = target
        else:
            self._transferees.pop(group, None)

    def configuration_changed(self, group: int) -> None:
        """Examine the majority of ``group`` again if it was lost: its voters may have changed."""
        if group in self._without_majority:
            self._request_examination()

    def replicas_added(self) -> None:
        """Record that the replicas of this node were added to the core; their majorities are
        examined ``START_LEASES`` later."""
        self._has_replicas.set()

    def replica_removed(self, group: int) -> None:
        """Forget a group whose replica left this node."""
        self._led.discard(group)
        self._leaders.pop(group, None)
        self._reasons.pop(group, None)
        self._transferees.pop(group, None)
        self._without_majority.discard(group)

    def _note(self, group: int, leader_before: int, reason: str) -> None:
        change = self._changes.get(group)
        if change is None:
            self._changes[group] = _Change(leader_before, reason)
        elif reason.startswith("transfer"):
            change.reason = reason
        self._request()

    def _reason_to_campaign(self, leader_before: int) -> str:
        if leader_before == self._core.node:
            return "elected again"
        if not leader_before:
            return "no leader was known"
        return (f"election while node {leader_before} is up" if self._is_up(leader_before)
                else f"node {leader_before} is down")

    def _is_up(self, peer: int) -> bool:
        return (peer == self._core.node or peer in self._supporting
                or peer in self._supported)

    def _request(self) -> None:
        self._reported.set()

    def _request_examination(self) -> None:
        self._is_scan_due = True
        self._request()

    # ---- the task --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write the collected changes ``pause_s`` after the first of them, again and again, and
        examine the majorities once after the start, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._examine_after_start)
            while True:
                await self._reported.wait()
                await trio.sleep(self._pause_s)
                await self.write()

    async def _examine_after_start(self) -> None:
        await self._has_replicas.wait()
        await trio.sleep(START_LEASES * self._lease_ms / 1_000)
        self._request_examination()

    async def write(self) -> None:
        """Write the lines of all changes reported so far, after those of an earlier call.
        O(changes), and O(groups) if majorities may have changed."""
        async with self._writing:
            self._reported = trio.Event()
            stall = self._write_peers()
            if self._is_scan_due:
                await self._examine_majorities(stall)
            await self._write_leadership()

    def _write_peers(self) -> str:
        """Write the lines of lost and returned nodes.  Return the reason of a loss that a stall of
        this node explains; empty = there is none."""
        stall = ""
        for peer in [peer for peer in self._down if not self._is_member(peer)]:
            del self._down[peer]
        changed, self._changed_peers = self._changed_peers, {}
        for (peer, _boot_epoch), loss in changed.items():
            if not self._is_member(peer):
                continue
            self._is_scan_due |= not loss.returned_ms or bool(self._without_majority)
            if self._endings.has_announced_stop(peer, loss.boot_epoch):
                if not loss.logged:
                    self._log.info("peer_stopped", extra={
                        "peer": peer, "boot_epoch": loss.boot_epoch,
                        "groups_leading_here": loss.groups_leading_here})
                loss.logged = True
                continue  # its return is ``peer_restarted``
            if not loss.logged:
                reason = self._ending_of(peer, loss)
                if not reason:
                    reason = self._own_stall(loss.lost_ms)
                    stall = reason or stall
                self._log.warning("node_lost", extra={
                    "peer": peer, "boot_epoch": loss.boot_epoch,
                    "groups_leading_here": loss.groups_leading_here, "reason": reason or _SILENT})
                loss.logged = True
            if loss.returned_ms:
                self._log.warning("node_returned", extra={
                    "peer": peer, "boot_epoch": loss.returned_epoch,
                    "down_ms": loss.returned_ms - loss.lost_ms})
        return stall

    def _epoch_of(self, peer: int) -> int:
        return max(self._supporting.get(peer, 0), self._supported.get(peer, 0))

    def _ending_of(self, peer: int, loss: _Loss) -> str:
        """Return how the process of a lost node ended; empty = nothing shows that it did."""
        if max(self._epoch_of(peer), loss.returned_epoch) > loss.boot_epoch:
            return "its process ended and was started again"
        if self._endings.is_refusing(peer):
            return "its process ended: its peer port refuses connections"
        return ""

    def _own_stall(self, lost_ms: int) -> str:
        """Return a sentence if this node stalled so shortly before ``lost_ms`` that its leases
        ended by that; empty = it did not."""
        what = self._endings.own_stall_since(lost_ms - STALL_LEASES * self._lease_ms)
        return what and (f"the {what} of this node stalled, so it neither sent heartbeats nor "
                         "answered any: check this node first")

    # ---- majorities ------------------------------------------------------------------------------

    async def _examine_majorities(self, stall: str) -> None:
        self._is_scan_due = False
        up_by_configuration: dict[Configuration, bool] = {}
        lacking: set[int] = set()
        missing: set[int] = set()
        groups = self._core.status.groups()
        for at in range(0, len(groups), SLICE):
            for group in groups[at:at + SLICE]:
                configuration = self._core.status.configuration(group)
                if configuration is None:
                    continue  # removed meanwhile, or created a moment ago
                if configuration not in up_by_configuration:
                    up_by_configuration[configuration] = joint_quorum.supported(
                        configuration, self._is_up)
                if not up_by_configuration[configuration]:
                    lacking.add(group)
            await trio.lowlevel.checkpoint()
        for configuration, is_up in up_by_configuration.items():
            if not is_up:
                missing.update(node for node in joint_quorum.voters(configuration)
                               if not self._is_up(node))
        before, self._without_majority = self._without_majority, lacking
        if lost := sorted(lacking - before):
            self._log.warning("quorum_lost", extra={
                "groups": len(lost), "first_groups": lost[:NAMED_MAX],
                "peers": sorted(missing)[:NAMED_MAX], "reason": stall or _TOO_FEW})
        if regained := sorted(before - lacking):
            self._log.warning("quorum_regained", extra={
                "groups": len(regained), "first_groups": regained[:NAMED_MAX],
                "groups_remaining": len(lacking)})

    # ---- leadership ------------------------------------------------------------------------------

    async def _write_leadership(self) -> None:
        changes, self._changes = self._changes, {}
        by_cause: dict[tuple[int, int, str], list[int]] = {}
        for number, (group, change) in enumerate(changes.items()):
            leader = self._core.status.leader_hint(group)[0]
            by_cause.setdefault((change.leader_before, leader, change.reason), []).append(group)
            if number % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
        for (leader_before, leader, reason), groups in by_cause.items():
            for count, named in _lines(sorted(groups)):
                self._log.info("leadership_changed", extra={
                    "groups": count, "leader_before": leader_before, "leader": leader,
                    "reason": reason, "group_ids": named})


def _lines(groups: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield (number of groups, groups that are named) of each line; the last one counts all that
    remain."""
    for line in range(LINES_PER_CAUSE):
        rest = groups[line * GROUPS_PER_LINE:]
        if not rest:
            return
        is_last = line == LINES_PER_CAUSE - 1
        yield len(rest) if is_last else min(len(rest), GROUPS_PER_LINE), rest[:GROUPS_PER_LINE]
