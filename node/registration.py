"""This node tells the cluster that it has started, and hears when it is no member any more.

Contract.  ``run`` registers the node with the metadata leader, whoever that is and however long it
takes: its incarnation is compared and set, its boot epoch, addresses, rack and weight take effect.
It raises ``NodeRefused`` when the metadata know the node as another one, or as removed.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from multiraft.errors import MultiRaftError
from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import Code, RequestError
from multiraft.wire.nodes import NodeRow
from node.admission import Admission, check_final
from node.known_nodes import KnownNodes
from node.metadata import NodeRecord, RegisterNode

#: Pause after an attempt that nobody answered, in seconds; an attempt itself looks for the leader
#: for several seconds.
RETRY_S = 1.0


class Registration:
    """See the module's docstring.  ``connect(addresses)`` opens a client of the cluster."""

    def __init__(self, core, metadata_log, known: KnownNodes, record: NodeRecord,
                 admission: Admission, connect: Callable, peering, log):
        self._core = core
        self._metadata_log = metadata_log
        self._known = known
        self._record = record
        self._admission = admission
        self._connect = connect
        self._peering = peering
        self._log = log

    async def run(self) -> None:
        """Task."""
        await self._admission.taking_part.wait()
        while not await self._registered():
            await trio.sleep(RETRY_S)
        self._log.info("registered", extra={"boot_epoch": self._record.boot_epoch})
        while True:
            if self._record.id in self._known.facts.removed:
                check_final(Code.NODE_REMOVED, f"node {self._record.id} was removed from the "
                            f"cluster")
            await self._known.changed()

    async def _registered(self) -> bool:
        """One attempt.  Raises ``NodeRefused``."""
        try:
            if self._core.is_leader(METADATA_GROUP):
                result = await self._metadata_log.propose(RegisterNode(self._record))
                if result.code != Code.OK:
                    self._refused(result.code, result.error.text)
                    return False
                return True
            addresses = [node.client_address for node in self._known.peers()]
            if not addresses:
                return False  # the only node, which does not lead yet
            async with self._connect(addresses) as client:
                reply = await client.join_cluster(NodeRow(*self._record))
        except RequestError as error:
            self._refused(error.code, str(error))
            return False
        except MultiRaftError as error:
            self._log.info("not registered yet", extra={"reason": str(error)})
            return False
        if self._known.learn({row.id: NodeRecord(*row) for row in reply.nodes},
                             dict.fromkeys(reply.removed, 0), reply.version):
            self._peering.changed()
        return True

    def _refused(self, code: Code, text: str) -> None:
        check_final(code, f"the cluster refuses this node: {text}")
        self._log.warning("not registered yet", extra={"reason": text})
