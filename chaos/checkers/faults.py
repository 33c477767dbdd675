"""Which faults are on, and which nodes they touch, as the history tells it.

Contract.  A fault event with ``on`` true begins, with false ends what began under the same name for
the same nodes, or else the oldest of that name.  A fault of an instant writes both.  One that names
no node touches all.
"""

from __future__ import annotations

from chaos.history import Event


class Faults:
    """The faults that are on."""

    __slots__ = ("_on",)

    def __init__(self) -> None:
        self._on: list[tuple[str, tuple[int, ...]]] = []

    def take(self, event: Event) -> tuple[int, ...]:
        """A fault begins or ends; the nodes it touches, empty = all."""
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
        """Whether one of them names no node."""
        return any(not nodes for _, nodes in self._on)

    @property
    def nodes(self) -> set[int]:
        """Those that are named."""
        return {node for _, nodes in self._on for node in nodes}

    def touch(self, node: int) -> bool:
        """Whether one of them touches the node."""
        return any(not nodes or node in nodes for _, nodes in self._on)
