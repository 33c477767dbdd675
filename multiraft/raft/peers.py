"""Other nodes as the core of one node knows them: support, connections, digests, leader table.

Contract.  The part of ``MultiRaft`` that concerns no single group.  ``outbox`` holds messages that
need no write.

Invariants.  ``pending`` contains each group at most once.  At most one digest query and one
leadership delta request per node wait for an answer.

Theory.  An event about a node queues the groups shared with it.  Each round re-examines
``liveness_checks_per_round_max`` of them, so the loss of a node that shares ten thousand groups
cannot stall the loop (scenarios S13, S17).  Trust ends at once, without the queue; see support.py.

One round trip resolves a digest mismatch.  The follower's node sends its 64 bucket sums, the
leader's node lists what it leads in the buckets that differ, and the follower's node corrects
exactly those groups.  Without an answer within ``lease_ms``, support proves only that the process
is alive (a one-way link, a blocked loop; scenario S11).  Then trust in the node is revoked, and its
groups elect new leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multiraft.errors import ImpossibleMessage
from multiraft.liveness.leadership_digest import BUCKETS
from multiraft.raft.context import NodeContext
from multiraft.raft.group import Group
from multiraft.raft.messages import (
    Append,
    AppendReply,
    DigestAnswer,
    DigestQuery,
    LeadershipDelta,
    LeadershipDeltaRequest,
    Message,
    SnapshotOffer,
    Status,
    VoteReply,
    VoteRequest,
)
from multiraft.raft.ready import Envelope, Event
from multiraft.raft.status import Role

#: Changes in one ``LeadershipDelta`` and groups in one ``DigestAnswer``: about 64 KiB of a frame.
LISTED_GROUPS_MAX = 4096

#: Group of events about a node.
NO_GROUP = -1


class Peers:
    """The other nodes, as far as groups here share them."""

    def __init__(self, context: NodeContext, groups: dict[int, Group]):
        self._context = context
        self._groups = groups
        self.leader_table = context.leader_table
        self.outbox: list[Envelope] = []
        self._groups_by_peer = context.groups_by_peer
        #: Groups to re-examine, oldest first.
        self.pending: dict[int, None] = {}

    # ---- groups of a node ---------------------------------------------------------------------

    def add_group(self, group: Group) -> None:
        """Subscribe a group that was added here to events of its members' nodes, and queue it for
        re-examination."""
        group.subscribe_to(group.configuration.members())
        self.pending[group.id] = None

    def remove_group(self, group: Group) -> None:
        """Forget a group whose replica left this node: no event of another node concerns it from
        now on.  Called after ``Group.leave``."""
        group.subscribe_to(())
        self.pending.pop(group.id, None)

    def _queue(self, node: int) -> None:
        self._context.view_version += 1
        self.pending.update(self._groups_by_peer.get(node, {}))

    def reexamine_some(self) -> None:
        """Re-examine the oldest ``liveness_checks_per_round_max`` pending groups."""
        for _ in range(min(len(self.pending), self._context.config.liveness_checks_per_round_max)):
            group = next(iter(self.pending))
            del self.pending[group]
            self._groups[group].reexamine()

    def _emit(self, kind: str, node: int, *fields: object) -> None:
        self._context.events.append(Event(kind, NO_GROUP, (node, *fields)))

    def _send(self, to: int, message: Message) -> None:
        self.outbox.append(Envelope(to, message))

    # ---- leases and connections ---------------------------------------------------------------

    def lease_granted(self, node: int, boot_epoch: int) -> None:
        support = self._context.support
        if support.support_for.get(node) == boot_epoch:
            return
        self._emit("lease_changed", node, "granted", boot_epoch)
        support.support_for[node] = boot_epoch
        self._heard_epoch(node, boot_epoch)
        self._queue(node)

    def lease_withdrawn(self, node: int) -> None:
        if self._context.support.support_for.pop(node, None) is not None:
            self._emit("lease_changed", node, "withdrawn")
            self._queue(node)

    def lease_held(self, node: int, boot_epoch: int) -> None:
        support = self._context.support
        if support.support_from.get(node) == boot_epoch:
            return
        self._emit("lease_changed", node, "held", boot_epoch)
        support.support_from[node] = boot_epoch
        self._heard_epoch(node, boot_epoch)
        self._queue(node)

    def lease_lost(self, node: int) -> None:
        if self._context.support.support_from.pop(node, None) is not None:
            self._context.support.full.discard(node)
            self._emit("lease_changed", node, "lost")
            self._queue(node)

    def peer_full(self, node: int, full: bool) -> None:
        known = self._context.support.full
        if node in self._context.support.support_from and full != (node in known):
            (known.add if full else known.discard)(node)
            self._emit("peer_disk_space", node, full)

    def _heard_epoch(self, node: int, boot_epoch: int) -> None:
        if self._context.support.heard_epoch(node, boot_epoch):
            self._emit("peer_restarted", node, boot_epoch)
            self.leader_table.restarted(node)

    def connected(self, node: int) -> None:
        self._context.support.connect(node)
        self._queue(node)
        if self.leader_table.is_behind(node):
            self._request_delta(node)

    def disconnected(self, node: int) -> None:
        self._context.support.connections.pop(node, None)

    def answer_unknown(self, sender: int, message: Message) -> None:
        """Answer a request for a group that is not here, or not in that incarnation.

        Only this item of its frame is affected (scenarios S36, S37), and replies are never
        answered.  An append or a snapshot offer also emits the event ``replica_requested``: its
        leader needs a replica here.  It may have compacted everything that it could append."""
        if isinstance(message, (Append, SnapshotOffer)):
            self._send(sender, AppendReply(message.group, message.incarnation, message.term,
                                           Status.UNKNOWN_GROUP, 0, 0, 0, 0, message.read_round))
            known = self._groups.get(message.group)
            if known is None or known.incarnation < message.incarnation:
                at = (message.first_index - 1 if isinstance(message, SnapshotOffer)
                      else message.prev_index)
                self._context.events.append(Event(
                    "replica_requested", message.group,
                    (message.incarnation, sender, message.term, at)))
        elif isinstance(message, VoteRequest):
            self._send(sender, VoteReply(message.group, message.incarnation, 0, False,
                                         message.pre))

    # ---- timers of node pairs -----------------------------------------------------------------

    def _digest_key(self, node: int) -> int:
        return -2 * node

    def _delta_key(self, node: int) -> int:
        return -2 * node - 1

    def on_timer(self, key: int) -> None:
        """React to a request that a node did not answer in time; ``key`` tells the node and the
        request.

        After a leadership delta request, send it again if it is still needed and the node is
        connected.  After a digest query, revoke trust in the node."""
        node = -key // 2
        if key == self._delta_key(node):
            if self.leader_table.is_behind(node) and node in self._context.support.connections:
                self._request_delta(node)  # without a connection, ``connected`` sends it again
        else:
            self._revoke_trust(node)

    # ---- digests ------------------------------------------------------------------------------

    def digest_mismatch(self, node: int) -> None:
        """Query ``node`` for the groups that it leads, or revoke trust if there is no connection to
        it."""
        context = self._context
        if node not in context.support.connections:
            self._revoke_trust(node)
            return
        followed = context.followed_digests.get(node)
        buckets = tuple(followed.buckets) if followed is not None else (0,) * BUCKETS
        self._send(node, DigestQuery(buckets))
        context.timers.arm(self._digest_key(node), context.now_ms + context.config.lease_ms)

    def _revoke_trust(self, node: int) -> None:
        """Revoke trust in ``node``, which does not explain its digest, and queue the groups shared
        with it.  Do nothing if no group here follows it."""
        followed = self._context.followed_digests.get(node)
        if followed is None or not followed.total:
            return
        self._emit("trust_revoked", node)
        self._context.support.revoke_trust(node)
        self._queue(node)

    def on_digest_query(self, sender: int, query: DigestQuery) -> None:
        """Answer ``sender`` with the groups led here in the buckets whose sums differ from the
        query's: whole buckets, about ``LISTED_GROUPS_MAX`` groups at most."""
        led = self._context.leading_digests.get(sender)
        mine = led.buckets if led is not None else [0] * BUCKETS
        differing = [bucket for bucket in range(BUCKETS) if mine[bucket] != query.buckets[bucket]]
        by_bucket: dict[int, list[tuple[int, int, int]]] = {bucket: [] for bucket in differing}
        for id_ in self._groups_by_peer.get(sender, {}):
            group = self._groups[id_]
            if group.role is Role.LEADER and id_ % BUCKETS in by_bucket:
                by_bucket[id_ % BUCKETS].append((id_, group.incarnation, group.term))
        buckets: list[int] = []
        listed: list[tuple[int, int, int]] = []
        for bucket in differing:
            if listed and len(listed) + len(by_bucket[bucket]) > LISTED_GROUPS_MAX:
                break  # the remaining buckets still differ and cause another query
            buckets.append(bucket)
            listed.extend(by_bucket[bucket])
        self._send(sender, DigestAnswer(tuple(buckets), tuple(listed)))

    def on_digest_answer(self, sender: int, answer: DigestAnswer) -> None:
        """Follow ``sender`` in the groups that its answer lists, and no longer in other groups of
        these buckets.  The timer of the query is cancelled."""
        self._context.timers.cancel(self._digest_key(sender))
        led = {item[0]: item for item in answer.led}
        buckets = dict.fromkeys(answer.buckets)
        # A copy: a group that loses its leader may be dropped from it.
        for id_ in tuple(self._groups_by_peer.get(sender, ())):
            group = self._groups[id_]
            if id_ % BUCKETS in buckets:
                item = led.get(id_)
                if item is None or item[1] != group.incarnation:
                    if group.leader == sender:
                        group.become_follower(group.term, 0, "leader does not lead")
                else:
                    self._leads(group, sender, item[2])

    def _leads(self, group: Group, sender: int, term: int) -> None:
        """Follow ``sender``, which leads ``group`` in ``term``, as if it had sent an append.  In an
        earlier term refuse, so that it steps down.  Raises ``ImpossibleMessage`` if this node leads
        that term."""
        if term < group.term:
            # The reply carries the higher term, so the sender steps down.
            group.reply_append(sender, Status.MISMATCH)
        elif term > group.term or group.leader != sender:
            if group.role is Role.LEADER and term == group.term:
                raise ImpossibleMessage(
                    f"group {group.id}: nodes {self._context.node} and {sender} "
                    f"both lead term {term}"
                )
            group.become_follower(term, sender, "digest")

    # ---- leader table -------------------------------------------------------------------------

    def peer_leading_version(self, node: int, version: int) -> None:
        self.leader_table.announced[node] = version
        if (self.leader_table.is_behind(node) and node in self._context.support.connections
                and self._context.timers.deadline(self._delta_key(node)) is None):
            self._request_delta(node)

    def _request_delta(self, node: int) -> None:
        context = self._context
        self._send(node, LeadershipDeltaRequest(self.leader_table.copied.get(node, 0)))
        context.timers.arm(self._delta_key(node), context.now_ms + context.config.retransmit_ms)

    def on_delta_request(self, sender: int, request: LeadershipDeltaRequest) -> None:
        version, changes = self._context.leading_changes.since(request.since, LISTED_GROUPS_MAX)
        self._send(sender, LeadershipDelta(request.since, version, changes))

    def on_delta(self, sender: int, answer: LeadershipDelta) -> None:
        if answer.since != self.leader_table.copied.get(sender, 0):
            return  # a reply to an earlier request, or of an earlier boot epoch
        self._context.view_version += 1
        for change in answer.changes:
            self.leader_table.learn(sender, change)
            group = self._groups.get(change[0])
            if group is not None:
                # A non-candidate may have found the leader to ask what became of its group.
                group.rearm()
        self.leader_table.copied[sender] = answer.version
        self.leader_table.announced[sender] = max(
            answer.version, self.leader_table.announced.get(sender, 0))
        # Else the node restarted its versions: the timer asks again.
        if answer.version > answer.since:
            self._context.timers.cancel(self._delta_key(sender))
            if self.leader_table.is_behind(sender):
                self._request_delta(sender)

    def _check(self) -> None:
        for group in self.pending:
            assert group in self._groups, f"pending group {group} is not here"
        for node, groups in self._groups_by_peer.items():
            led = [self._groups[id_] for id_ in groups if self._groups[id_].role is Role.LEADER]
            total = sum(group.leadership_record.fact for group in led) % (1 << 64)
            kept = self._context.leading_digests.get(node)
            assert total == (kept.total if kept is not None else 0), f"led digest for {node}"


HANDLERS: dict[type, Callable[[Peers, int, Any], None]] = {
    DigestQuery: Peers.on_digest_query,
    DigestAnswer: Peers.on_digest_answer,
    LeadershipDeltaRequest: Peers.on_delta_request,
    LeadershipDelta: Peers.on_delta,
}
