"""Faults that are active and the nodes that they affect, as the history records them.

Contract.  A fault event with ``on`` true begins a fault.  One with ``on`` false ends the fault of
the same name and nodes, or else the oldest of that name.  A momentary fault writes both.  A fault
that names no node affects all nodes.
"""

from __future__ import annotations

from chaos.history import Event


class Faults:
    """The active faults."""

    __slots__ = ("_on",)

    def __init__(self) -> None:
        self._on: list[tuple[str, tuple[int, ...]]] = []

    def take(self, event: Event) -> tuple[int, ...]:
        """Begin or end the fault of an event; return the nodes that the change affects, empty =
        all.

        An end without its own begin ends the oldest active fault of its name, and returns the nodes
        of both.
        """
        nodes = tuple(event.data.get("nodes") or ())
        if event.data.get("on"):
            self._on.append((event.name, nodes))
            return nodes
        same = [fault for fault in self._on if fault[0] == event.name]
        ended = (event.name, nodes)
        if ended not in same and same:
            ended = same[0]
        if ended in self._on:
            self._on.remove(ended)
        return nodes if not nodes or ended[1] == nodes else (*nodes, *ended[1])

    def __bool__(self) -> bool:
        return bool(self._on)

    @property
    def touch_all(self) -> bool:
        """True if an active fault names no node, and so affects all."""
        return any(not nodes for _, nodes in self._on)

    @property
    def nodes(self) -> set[int]:
        """Return the nodes that the active faults name; ``CLIENTS`` may be one of them."""
        return {node for _, nodes in self._on for node in nodes}

    def touch(self, node: int) -> bool:
        """True if an active fault affects the node: it names the node, or none."""
        return any(not nodes or node in nodes for _, nodes in self._on)
