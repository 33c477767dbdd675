"""Simulated network that loses, delays, duplicates, reorders and partitions.

Contract.  ``send`` takes a frame (a tuple of items) from one node to another.  Every item arrives
once, never or twice, in the order of its link unless the frame is picked to overtake.  ``repeat``
delivers the last append frames of a node again after that node was restarted.  A frame that was
under way when its sender or receiver crashed still arrives, because bytes outlive processes
(scenario S7).  Links are one-way.  ``block`` and ``clog`` act on one direction; ``block`` acts on
one channel of the direction when the link names a channel, because connections between two nodes
may fail one by one.

Theory.  The items of a frame share its fate, with one exception: ``item_loss`` removes one group's
item from a frame, as a broken demultiplexer would (scenario S5).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.parameters import NetworkParameters

Link = tuple[int, int] | tuple[int, int, str]  # sender, receiver, channel (none = all)
Frame = tuple[Any, ...]


class SimulatedNetwork:
    """All links between all nodes."""

    def __init__(self, queue: EventQueue, rng: random.Random, parameters: NetworkParameters,
                 faults: Counter[str]):
        self._queue = queue
        self._rng = rng
        self._parameters = parameters
        self._faults = faults
        self._damaged = parameters.loss + parameters.duplication + parameters.item_loss
        self._blocked: dict[Link, int] = {}  # number of partitions that cut the link
        self._clogged: dict[Link, int] = {}  # extra delay, microseconds
        self._busy_until: dict[tuple[int, int, str], int] = {}
        #: (sender, receiver) -> the last append frame on that link, and its ``deliver``.
        self._last: dict[tuple[int, int], tuple[Frame, Callable[[int, Frame], None]]] = {}
        self.faulty = True
        self.frames = 0
        self.items = 0

    # ---- faults ----------------------------------------------------------------------------

    def block(self, links: list[Link]) -> None:
        for link in links:
            self._blocked[link] = self._blocked.get(link, 0) + 1

    def unblock(self, links: list[Link]) -> None:
        for link in links:
            self._blocked[link] -= 1
            if not self._blocked[link]:
                del self._blocked[link]

    def is_blocked(self, sender: int, to: int) -> bool:
        return (sender, to) in self._blocked

    def clog(self, links: list[Link], extra_us: int) -> None:
        for link in links:
            self._clogged[link] = extra_us

    def unclog(self, links: list[Link]) -> None:
        for link in links:
            self._clogged.pop(link, None)

    def heal(self) -> None:
        """End all faults, those of single frames included; frames that are already delayed or
        duplicated still arrive so."""
        self.faulty = False
        self._blocked.clear()
        self._clogged.clear()

    # ---- traffic ---------------------------------------------------------------------------

    def send(self, sender: int, to: int, channel: str, frame: Frame,
             deliver: Callable[[int, Frame], None]) -> None:
        """Send ``frame``; ``deliver(sender, frame)`` runs later, once for each copy that arrives.
        None arrives over a cut link or channel; faults may lose, duplicate or shorten it."""
        self.frames += 1
        self.items += len(frame)
        if channel == "append":
            self._last[sender, to] = frame, deliver
        blocked = self._blocked
        if blocked and ((sender, to) in blocked or (sender, to, channel) in blocked):
            return
        copies = 1
        if self.faulty and (draw := self._rng.random()) < self._damaged:
            frame, copies = self._damage(frame, draw)
        for _ in range(copies):
            self._queue.at(self._arrival_us(sender, to, channel), deliver, sender, frame)

    def repeat(self, sender: int, rng: random.Random, within_us: int) -> None:
        """Deliver the last append frame of each link of ``sender`` once more, within ``within_us``.

        When the node has been restarted by then, the frames are from its previous boot.
        """
        for (said_by, _), (frame, deliver) in sorted(self._last.items(), key=lambda last: last[0]):
            if said_by == sender:
                self._faults["repeat"] += 1
                self._queue.after(rng.randrange(within_us), deliver, sender, frame)

    def _damage(self, frame: Frame, draw: float) -> tuple[Frame, int]:
        """Return what is left of ``frame``, and the number of its copies that arrive; ``draw``,
        uniform from 0 to 1, selects the damage."""
        parameters = self._parameters
        if draw < parameters.loss:
            self._faults["loss"] += 1
            return frame, 0
        draw -= parameters.loss
        if draw < parameters.duplication:
            self._faults["duplicate"] += 1
            return frame, 2
        draw -= parameters.duplication
        if draw < parameters.item_loss and frame:
            self._faults["item-loss"] += 1
            gone = self._rng.randrange(len(frame))
            left = frame[:gone] + frame[gone + 1:]
            return left, 1 if left else 0
        return frame, 1

    def _arrival_us(self, sender: int, to: int, channel: str) -> int:
        random, parameters = self._rng.random, self._parameters
        arrival = (self._queue.now_us + parameters.delay_min_us
                   + int(random() * parameters.delay_spread_us))
        if self.faulty:
            if self._clogged:
                arrival += self._clogged.get((sender, to), 0)
            if parameters.reorder and random() < parameters.reorder:
                self._faults["reorder"] += 1
                return arrival + int(random() * parameters.reorder_us)
        key = (sender, to, channel)
        busy_until = self._busy_until.get(key, 0)
        if arrival < busy_until:
            return busy_until
        self._busy_until[key] = arrival
        return arrival
