"""Packet rules of one node's network namespace, derived from the link faults of the cluster.

Contract.  ``LinkFaults`` describes the faults of all links; ``rules`` is the whole table of one
node, a pure function, and ``iptables-restore`` replaces the former table by it atomically.  So
healing is a table without rules, and applying a table twice has the effect of once.

Theory.  Packets of a link are dropped where they arrive, so that one direction can be cut alone:
packets leave their sender and are lost on the way.  Only links to the clients, in whose namespace
nothing may be changed, are dropped where they leave.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.backends import host
from chaos.backends.backend import CLIENTS, BackendError, Delay, Link

#: The queue of a node's namespace in which its delayed packets wait.
QUEUE = 1


@dataclass
class LinkFaults:
    """Link faults of a cluster."""

    cut: frozenset[Link] = frozenset()
    lossy: frozenset[Link] = frozenset()
    loss: float = 0.0
    delayed: frozenset[Link] = frozenset()
    delay: Delay | None = None
    reset: frozenset[Link] = frozenset()


def rules(node: int, addresses: Mapping[int, str], faults: LinkFaults) -> str:
    """Return the input of ``iptables-restore`` for the namespace of ``node``. ``addresses``: node
    -> address, of ``CLIENTS`` too; links from nodes without one are left out."""
    lines = ["*filter", ":INPUT ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
    for links, action in (
            (faults.reset, "-p tcp -j REJECT --reject-with tcp-reset"),
            (faults.cut, "-j DROP"),
            (faults.lossy, f"-m statistic --mode random --probability {faults.loss:.6f} -j DROP"),
            # Bypassed while no process holds packets: a holder that died delays nothing.
            (faults.delayed, f"-j NFQUEUE --queue-num {QUEUE} --queue-bypass")):
        for link in sorted(links):
            # A reset must leave this namespace: the chain of what it sends cannot send it.
            if link.target == node and link.source in addresses:
                lines.append(f"-A INPUT -s {addresses[link.source]} {action}")
            elif link == Link(node, CLIENTS):
                lines.append(f"-A OUTPUT -d {addresses[CLIENTS]} {action}")
    return "\n".join([*lines, "COMMIT", ""])


class NodePackets:
    """The rules of one node's namespace, and the process that delays its packets."""

    def __init__(self, node: int, namespace: Path):
        self.node = node
        self.namespace = namespace
        self._holder: subprocess.Popen | None = None
        self._delay: Delay | None = None

    def apply(self, addresses: Mapping[int, str], faults: LinkFaults) -> None:
        """Replace the namespace's packet rules by those for ``faults``, and start, replace or end
        the process that delays packets. ``addresses`` as for ``rules``. Raises ``BackendError``."""
        concerned = any(link.target == self.node or link == Link(self.node, CLIENTS)
                        for link in faults.delayed)
        delay = faults.delay if concerned else None
        if delay is not None and delay != self._delay:
            self._hold(delay)
        table = rules(self.node, addresses, faults)
        host.run(*host.within(self.namespace, "iptables-restore"), text=table)
        if delay is None:
            self.release()

    def release(self) -> None:
        """End the process that delays packets, if any; packets that wait are dropped with the
        queue. The packet rules stay."""
        self._delay = None
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
            self._holder = None

    def _hold(self, delay: Delay) -> None:
        self.release()
        options = ["--queue", str(QUEUE), "--ms", str(delay.ms), "--jitter-ms",
                   str(delay.jitter_ms), *["--reorder"] * delay.reorder]
        self._holder = subprocess.Popen(
            host.within(self.namespace, *host.module("chaos.backends.held_packets", *options)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=host.environment())
        said = self._holder.stdout.readline()
        if said != "holding\n":
            self.release()
            raise BackendError(f"the packets of node {self.node} cannot be delayed: {said!r}")
        self._delay = delay
