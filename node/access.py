"""Permissions of clients: the one function that every handler of a client's request calls.

Contract. ``authorize(principal, operation, kind, name)`` returns True if the client may carry out
the operation on the resource. It allows everything, because there are no access rules yet. Handlers
call it through ``Session.may``, before anything is read or changed for the resource: once for each
topic that a request names, once for a request about the cluster, and never for a record.
Operations, kinds of resources and the name of the cluster are Kafka's.

A client that presents a certificate is the user of its common name, else of its first DNS name. All
others are the user ANONYMOUS. Nodes need no permission: the handshake of the peer port has proven
who they are.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol


class Operation(enum.IntEnum):
    """Operation of a client on a resource; Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceKind(enum.IntEnum):
    """Kind of a resource; Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Principal(NamedTuple):
    """Identity of a client. A user has Kafka's type of principals, ``User``."""

    name: str

    def __str__(self) -> str:
        return f"User:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
#: Name of the only resource of kind ``CLUSTER``.
CLUSTER_NAME = "kafka-cluster"
#: Name that stands for all resources of a kind.
ANY_NAME = "*"


class Authorize(Protocol):
    """The rules of access."""

    def __call__(self, principal: Principal, operation: Operation, kind: ResourceKind,
                 name: str) -> bool:
        """Return True if the operation is allowed."""


def authorize(principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> bool:
    """Return True: everything is allowed until there are access rules.  O(1)."""
    return True


def principal_of(common_name: str, dns_names: tuple[str, ...]) -> Principal:
    """Return the principal of a client whose certificate has these names; none = it presented no
    certificate."""
    name = common_name or (dns_names[0] if dns_names else "")
    return Principal(name) if name else ANONYMOUS


def denial(principal: Principal, operation: Operation, kind: ResourceKind, name: str) -> str:
    """Return the text of a refusal."""
    return (f"{principal} has no permission for {operation.name} on "
            f"{kind.name.lower().replace('_', ' ')} {name!r:.80}")
