"""Errors of placement for invalid input.

    PlacementError
    +- InvalidTopology     an impossible node: id, rack or weight out of range, or repeated
    +- NotEnoughNodes      fewer nodes than replicas, with both numbers
    +- LimitExceeded       a named limit, with limit and value
    +- InvalidDocument     bytes that are no snapshot, policy or plan
    +- InvalidSnapshot     a snapshot that contradicts itself
    +- InvalidPolicy       a policy or option that cannot be followed
    +- InvalidChange       an impossible change of the cluster
    +- EditedPlan          contents and plan_id differ
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


class InvalidDocument(PlacementError):
    """Bytes or values that are no snapshot, policy or plan of a version known here."""


class InvalidSnapshot(PlacementError):
    """A snapshot that is contradictory or impossible; ``code`` is for programs."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class InvalidPolicy(PlacementError):
    """A policy or an option of a plan that cannot be followed."""


class InvalidChange(PlacementError):
    """An impossible change of nodes or of the pool, so that its effect cannot be computed."""


class EditedPlan(PlacementError):
    """A plan whose contents differ from those of its ``plan_id``."""

    def __init__(self, stated: str, computed: str):
        super().__init__(f"the plan says it is {stated:.16}... and its contents are "
                         f"{computed:.16}...: it was edited or damaged; make a new one")
        self.stated = stated
        self.computed = computed
