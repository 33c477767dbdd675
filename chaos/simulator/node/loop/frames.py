"""Frames that a round takes, handed to the parts of their boot."""

from __future__ import annotations

from chaos.simulator.node.clients.client_port import ClientPort
from chaos.simulator.node.loop.disk_space import DiskSpace
from chaos.simulator.node.machine.round_queue import Arrival, Channel
from chaos.simulator.node.peers.bulk_channel import BulkChannel, BulkReply, BulkRequest
from chaos.simulator.node.peers.transport import with_entries
from chaos.simulator.node.rebalance.move_services import MoveServices, PeerReply, PeerRequest
from multiraft import core
from multiraft.liveness.store_liveness import LeaseEvent, deliver
from multiraft.raft.messages import Append
from multiraft.raft.multi_raft import MultiRaft


class FrameHandlers:
    """Handlers of one boot, by channel."""

    def __init__(self, raft: MultiRaft, space: DiskSpace, clients: ClientPort, bulk: BulkChannel,
                 services: MoveServices):
        self._raft = raft
        self._space = space
        self._bulk = bulk
        self._services = services
        handlers = {Channel.PEER: self._step, Channel.BULK: self._take_bulk,
                    Channel.CLIENT: clients.receive, Channel.LIVENESS: self._take_leases}
        #: By channel; a tuple, because the hash of an enumeration's member takes long.
        self._handlers = tuple(handlers[channel] for channel in Channel)

    def handle(self, arrival: Arrival) -> None:
        """Handle one frame."""
        channel, sender, frame = arrival
        self._handlers[channel](sender, frame)

    def _step(self, sender: int, frame: tuple) -> None:
        for message in frame:
            if type(message) is Append and message.entries:
                message = with_entries(message, tuple(core.parse_entries(message.entries)))
                if self._space.drops(message.entries):
                    continue
            self._raft.step(sender, message)

    def _take_leases(self, _sender: int, events: list[LeaseEvent]) -> None:
        deliver(events, self._raft)

    def _take_bulk(self, sender: int, frame: tuple) -> None:
        for item in frame:
            if isinstance(item, BulkRequest):
                self._bulk.serve(sender, item)
            elif isinstance(item, BulkReply):
                self._bulk.take_reply(item)
            elif isinstance(item, PeerRequest):
                self._services.serve_request(sender, item)
            else:
                assert isinstance(item, PeerReply), item
                self._services.take_reply(item)
