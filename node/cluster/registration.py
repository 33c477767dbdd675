"""This node tells the cluster that it has started, and hears when it is no member any more.

Contract.  ``run`` registers the node with the metadata leader, whoever that is and however long it
takes: its incarnation is compared and set, its boot epoch, addresses, rack and weight take effect.
It raises ``NodeRefused`` when the metadata know the node as another one, or as removed.
Whoever was away while nodes joined may not know the one that leads the metadata group now, and
would turn it away: when attempts fail for a while, the nodes that are known are asked whom they
know.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from multiraft.errors import MultiRaftError
from multiraft.liveness.peer_identity import NO_LIFE, Life
from multiraft.wire.errors import Code, RequestError
from multiraft.wire.nodes import (
    JoinClusterReply,
    NodeRow,
    NodesKnown,
    NodesKnownReply,
    RegisterNode,
)
from node.cluster.metadata_client import MetadataRequests
from node.cluster.peer_requests import PeerRequests
from node.metadata.state_machine import NodeRecord
from node.peers.admission import Admission
from node.peers.registry import PeerRegistry

if TYPE_CHECKING:
    from node.peers.link_manager import Peering

#: Pause after an attempt that the metadata leader did not answer, in seconds: the first, and what
#: it grows to, about an election.
RETRY_S_MIN = 0.02
RETRY_S_MAX = 0.5
#: A node that does not say whom it knows within this time, in seconds, is asked later.
ASK_S_MAX = 1.0


class Registration:
    """See the module's docstring."""

    def __init__(self, requests: MetadataRequests, peers: PeerRequests, known: PeerRegistry,
                 record: NodeRecord, admission: Admission, peering: Peering, log: logging.Logger):
        self._requests = requests
        self._peers = peers
        self._known = known
        self._record = record
        self._admission = admission
        self._peering = peering
        self._log = log
        self._why = ""

    async def run(self) -> None:
        """Task."""
        await self._admission.taking_part.wait()
        pause_s = RETRY_S_MIN
        while not await self._registered():
            await trio.sleep(pause_s)
            if pause_s == RETRY_S_MAX:  # longer than an election takes
                await self._ask_around()
            pause_s = min(2 * pause_s, RETRY_S_MAX)
        self._log.info("registered", extra={"boot_epoch": self._record.boot_epoch})
        while True:
            if self._record.id in self._known.facts.removed:
                self._admission.check_final(
                    Code.NODE_REMOVED, f"node {self._record.id} was removed from the cluster")
            await self._known.changed()

    async def _registered(self) -> bool:
        """One attempt.  Raises ``NodeRefused``."""
        try:
            reply = await self._requests.ask(RegisterNode(NodeRow(*self._record)))
        except RequestError as error:
            self._admission.check_final(error.code, f"the cluster refuses this node: {error}",
                                        self._registered_life())
            self._not_yet(str(error))
            return False
        except MultiRaftError as error:
            self._not_yet(str(error))
            return False
        self._learn(reply)
        return True

    def _registered_life(self) -> Life:
        """The latest start of this node that the metadata know of, as far as this node does."""
        known = self._known.facts.nodes.get(self._record.id)
        return Life(known.boot_epoch, 0) if known is not None else NO_LIFE

    async def _ask_around(self) -> None:
        """Who is there?  Of every node that is known, one after the other."""
        for node in self._known.peers():
            try:
                with trio.move_on_after(ASK_S_MAX):
                    self._learn(await self._peers.ask(node.id, NodesKnown()))
            except MultiRaftError as error:
                self._log.debug("does not say whom it knows",
                                extra={"peer": node.id, "reason": str(error)})

    def _learn(self, reply: JoinClusterReply | NodesKnownReply) -> None:
        if self._known.learn({row.id: NodeRecord(*row) for row in reply.nodes},
                             dict.fromkeys(reply.removed, 0), reply.version):
            self._peering.changed()

    def _not_yet(self, why: str) -> None:
        if why != self._why:
            self._why = why
            self._log.info("not registered yet", extra={"reason": why})
