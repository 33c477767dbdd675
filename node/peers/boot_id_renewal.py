"""Renewal of this node's boot id while it runs, so that a copy of a running node's directory is
soon recognized as older.

Contract. ``run`` draws a new number after each ``RENEW_S`` in which the node wrote something, makes
it durable, and introduces the node with it to every reachable peer that remembers boot ids. A peer
that cannot be reached keeps an earlier number, which remains one of this directory's own. A peer of
the previous release keeps the number of the start.

Theory. A snapshot of a machine's disk is usually taken while the node runs, and restored after the
node has run for days in the same boot epoch. Only a number that the snapshot lacks distinguishes
the two. Whatever the node acknowledged since the last number is not covered (docs/decisions/0052).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable

import trio

from multiraft.liveness.peer_identity import BootId
from multiraft.storage.errors import StorageError
from multiraft.wire.errors import RemoteProtocolError
from node.errors import DiskFailed
from node.peers.admission import Admission
from node.peers.handshake import Introduction, NotAccepted, introduce
from node.peers.registry import PeerRegistry

#: Seconds between two numbers while the node writes. Each costs a small synced file here and one at
#: each peer.
RENEW_S = 10.0
#: Longest wait for a peer's answer, in seconds; a slower peer receives the next number.
INTRODUCE_S_MAX = 2.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Renewal:
    """Task that renews the node's boot id while it writes. ``written()`` grows with every write.
    ``renew()`` makes a new number durable; it blocks. ``dial`` and ``introduction`` open a
    connection to a peer."""

    def __init__(self, admission: Admission, known: PeerRegistry, written: Callable[[], int],
                 renew: Callable[[], tuple[BootId, ...]], dial: Callable[[int], Awaitable],
                 introduction: Callable[[int], Introduction], log: logging.Logger):
        self._admission = admission
        self._known = known
        self._written = written
        self._renew = renew
        self._dial = dial
        self._introduction = introduction
        self._log = log

    async def run(self) -> None:
        """Wait for admission, then renew the boot id and introduce the node to its peers every
        ``RENEW_S`` in which something was written. Runs until cancelled; raises what ``renew``
        raises."""
        await self._admission.admitted.wait()
        before = self._written()
        while True:
            await trio.sleep(RENEW_S)
            now = self._written()
            if now != before:
                before = now
                await self.renew()

    async def renew(self) -> None:
        """Draw a number now, and introduce the node to its peers with it, each within
        ``INTRODUCE_S_MAX``. On a full disk keep the present number. Raises ``DiskFailed`` if the
        number cannot be kept, ``NodeRefused`` for a refusal that is final."""
        try:
            boot_ids = await trio.to_thread.run_sync(self._renew)
        except (OSError, StorageError) as error:
            if getattr(error, "errno", None) not in _FULL:
                raise DiskFailed(f"a new boot id cannot be kept: {error}") from error
            self._log.debug("boot_id_renewal_deferred")
            return
        self._admission.renewed(boot_ids)
        async with trio.open_nursery() as nursery:
            for node in self._known.peers():
                if self._admission.remembers(node.id):
                    nursery.start_soon(self._tell, node.id)

    async def _tell(self, peer: int) -> None:
        """Introduce the node to ``peer``, a second time if the peer asks for another number of this
        directory; give up after ``INTRODUCE_S_MAX``."""
        with trio.move_on_after(INTRODUCE_S_MAX):
            if not await self._introduced(peer) and await self._admission.linked(peer):
                await self._introduced(peer)

    async def _introduced(self, peer: int) -> bool:
        """Open a connection to ``peer``, run the handshake and close it. Return True if the peer
        accepted the present number. Raises ``NodeRefused`` for a refusal that is final."""
        sock = await self._dial(peer)
        if sock is None:
            return False
        try:
            opened, _ = await introduce(sock, self._introduction(peer))
            opened.close()
        except NotAccepted as error:
            if error.proven:
                self._admission.refused(peer, error.code, str(error), error.remembered)
            return False
        except (OSError, RemoteProtocolError) as error:
            self._log.debug("boot_id_announcement_failed",
                            extra={"peer": peer, "reason": str(error)})
            return False
        finally:
            sock.close()
        self._admission.welcomed(peer)
        return True
