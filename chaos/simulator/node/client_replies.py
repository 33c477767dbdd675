"""Replies to clients: one frame per client, at the end of a round or of a completion."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.fail_points import FailPoints


class ClientReplies:
    """Replies of one boot that have not left."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints,
                 receive: Callable[[int, tuple], None]):
        """``receive(sender, frame)`` is called where a frame arrives."""
        self._node = env.node
        self._network = env.network
        self._fail_points = fail_points
        self._receive = receive
        self._replies: dict[int, list[tuple]] = {}  # by client

    def add(self, client: int, reply: tuple) -> None:
        """Queue a reply for the client's next frame, which leaves before the round or the
        completion ends.
        """
        self._replies.setdefault(client, []).append(reply)

    @property
    def wait(self) -> bool:
        """True if replies have not left."""
        return bool(self._replies)

    def send(self) -> None:
        """Send one frame to each client with replies."""
        if not self._replies:
            return
        queued, self._replies = self._replies, {}
        for client, replies in queued.items():
            self._fail_points.effect()
            self._network.send(self._node, client, "client", tuple(replies), self._receive)
