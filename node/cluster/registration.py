"""The registration of this node with the cluster after a start, and the detection of its removal.

Contract. ``run`` registers the node with the present metadata leader, however long that takes: its
incarnation is compared and set; its boot epoch, addresses (also that for Kafka's clients), rack and
weight take effect. It raises ``NodeRefused`` if the metadata know the node under another
incarnation, or as removed. A node that was absent while others joined may not know the node that
now leads the metadata group, and would refuse its connection. Therefore, after failed attempts for
a while, all known nodes are asked for the nodes that they know.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from multiraft.errors import MultiRaftError
from multiraft.liveness.peer_identity import NO_BOOT_ID, BootId
from multiraft.wire.errors import Code, RequestError
from multiraft.wire.nodes import (
    JoinClusterReply,
    KnownNodes,
    KnownNodesReply,
    NodeRow,
    RegisterNode,
)
from node.cluster.metadata_client import MetadataRequests
from node.cluster.peer_requests import PeerRequests
from node.metadata.node_releases import kafka_addresses_fault
from node.metadata.state_machine import NodeRecord
from node.peers.admission import Admission
from node.peers.registry import PeerRegistry

if TYPE_CHECKING:
    from node.peers.link_manager import LinkManager

#: Pause after an attempt without an answer of the metadata leader, in seconds: the first, and the
#: longest, about an election.
RETRY_S_MIN = 0.02
RETRY_S_MAX = 0.5
#: Longest wait for the nodes that a peer knows, in seconds; it is asked again later.
ASK_S_MAX = 1.0


class Registration:
    """Task that registers this node at the metadata leader, and watches for its removal."""

    def __init__(
        self,
        requests: MetadataRequests,
        peers: PeerRequests,
        known: PeerRegistry,
        record: NodeRecord,
        admission: Admission,
        link_manager: LinkManager,
        log: logging.Logger,
    ):
        self._requests = requests
        self._peers = peers
        self._known = known
        self._record = record
        self._admission = admission
        self._link_manager = link_manager
        self._log = log
        self._why = ""
        self._awaits_releases = False  # registered without the address for Kafka's clients

    async def run(self) -> None:
        """Register this node once it is admitted, then watch for its removal from the cluster,
        until cancelled. Raises ``NodeRefused`` when it was removed, or the cluster refuses it for
        good."""
        await self._admission.admitted.wait()
        await self._register()
        while True:
            if self._record.id in self._known.facts.removed:
                self._admission.check_final(
                    Code.NODE_REMOVED, f"node {self._record.id} was removed from the cluster")
            if self._awaits_releases and self._record_now() == self._record:
                await self._register()
                continue
            await self._known.changed()

    async def _register(self) -> None:
        """Register this node, however long that takes.  Raises ``NodeRefused``."""
        pause_s = RETRY_S_MIN
        while not await self._registered():
            await trio.sleep(pause_s)
            if pause_s == RETRY_S_MAX:  # longer than an election takes
                await self._ask_around()
            pause_s = min(2 * pause_s, RETRY_S_MAX)
        self._log.info("node_registered", extra={"boot_epoch": self._record.boot_epoch})

    def _record_now(self) -> NodeRecord:
        """Return the record of this node, without an address for Kafka's clients as long as another
        node could not read it."""
        if self._record.kafka_address and kafka_addresses_fault(self._known.facts.nodes.values()):
            return self._record._replace(kafka_address="")
        return self._record

    async def _registered(self) -> bool:
        """Make one attempt to register this node, and take over the nodes in the reply. Return
        False, after logging a new reason, if it failed. Raises ``NodeRefused`` for a refusal that
        is final."""
        try:
            record = self._record_now()
            reply = await self._requests.ask(RegisterNode(NodeRow(*record)))
        except RequestError as error:
            self._admission.check_final(error.code, f"the cluster refuses this node: {error}",
                                        self._registered_boot_id())
            self._not_yet(str(error))
            return False
        except MultiRaftError as error:
            self._not_yet(str(error))
            return False
        self._awaits_releases = record != self._record
        self._learn(reply)
        return True

    def _registered_boot_id(self) -> BootId:
        """Return the latest boot of this node in the metadata, as far as they are known here."""
        known = self._known.facts.nodes.get(self._record.id)
        return BootId(known.boot_epoch, 0) if known is not None else NO_BOOT_ID

    async def _ask_around(self) -> None:
        """Ask every known node, one after the other, for the nodes that it knows, and take them
        over; nodes that do not answer are skipped."""
        for node in self._known.peers():
            try:
                with trio.move_on_after(ASK_S_MAX):
                    self._learn(await self._peers.ask(node.id, KnownNodes()))
            except MultiRaftError as error:
                self._log.debug("peer_list_request_failed",
                                extra={"peer": node.id, "reason": str(error)})

    def _learn(self, reply: JoinClusterReply | KnownNodesReply) -> None:
        if self._known.learn({row.id: NodeRecord(*row) for row in reply.nodes},
                             dict.fromkeys(reply.removed, 0), reply.version):
            self._link_manager.changed()

    def _not_yet(self, why: str) -> None:
        if why != self._why:
            self._why = why
            self._log.info("node_registration_deferred", extra={"reason": why})
