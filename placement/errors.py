"""What can be wrong with what placement is asked.

    PlacementError
    +- InvalidTopology     a node that cannot be: id, rack, weight, twice
    +- NotEnoughNodes      fewer nodes than replicas, with both numbers
    +- LimitExceeded       a named limit, with limit and value
"""

from __future__ import annotations


class PlacementError(Exception):
    """Root of placement's errors."""


class InvalidTopology(PlacementError):
    """A node's id, rack or weight is out of range, or an id appears twice."""


class NotEnoughNodes(PlacementError):
    """The replication factor exceeds the nodes that may take replicas."""

    def __init__(self, replication_factor: int, nodes: int):
        super().__init__(f"replication factor {replication_factor} needs as many nodes with a "
                         f"weight above 0, there are {nodes}")
        self.replication_factor = replication_factor
        self.nodes = nodes


class LimitExceeded(PlacementError):
    """A value outside its named limit."""

    def __init__(self, name: str, limit: int, value: int):
        super().__init__(f"{name}: {value} is outside the limit of {limit}")
        self.name = name
        self.limit = limit
        self.value = value
