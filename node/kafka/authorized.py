"""Permissions of Kafka's clients: the errors of what they may not do, and the bit fields of answers
that say what they may.

Contract. ``fault`` asks for one permission. A bit field has the bit of each operation's number in
Kafka: of all of them, because everything is allowed; a client that does not ask for the field gets
none.
"""

from __future__ import annotations

from multiraft.kafka.error_codes import ErrorCode
from node.access import CLUSTER_NAME, Operation, ResourceKind, denial
from node.clients.session import Session
from node.kafka.error_codes import Fault

_ERRORS = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


_TOPIC = (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
          Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_CLUSTER = (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE)


def fault(session: Session, operation: Operation, kind: ResourceKind, name: str) -> Fault | None:
    """Return the error of a client without the permission, None if it has it."""
    if session.may(operation, kind, name):
        return None
    return Fault(_ERRORS[kind], denial(session.principal, operation, kind, name))


def topic_fault(session: Session, operation: Operation, name: str) -> Fault | None:
    """Return the error of a client that may not carry out the operation on a topic, or None."""
    return fault(session, operation, ResourceKind.TOPIC, name)


def cluster_fault(session: Session, operation: Operation) -> Fault | None:
    """Return the error of a client that may not carry out the operation on the cluster, or
    None."""
    return fault(session, operation, ResourceKind.CLUSTER, CLUSTER_NAME)


def topic_operations() -> int:
    """Return the operations on a topic that a client may carry out."""
    return _bits(_TOPIC)


def cluster_operations() -> int:
    """Return the operations on the cluster that a client may carry out."""
    return _bits(_CLUSTER)


def _bits(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)
