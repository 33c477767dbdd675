"""Operations that a client may carry out, as the bit fields of Kafka's answers.

Contract. A field has the bit of each operation's number in Kafka. Everything is allowed, because
there are no access rules; a client that is not asked for the field gets none.
"""

from __future__ import annotations

import enum


class Operation(enum.IntEnum):
    """Kafka's numbers of operations."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_TOPIC = (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
          Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_CLUSTER = (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE)


def topic_operations() -> int:
    """Return the operations on a topic that a client may carry out."""
    return _bits(_TOPIC)


def cluster_operations() -> int:
    """Return the operations on the cluster that a client may carry out."""
    return _bits(_CLUSTER)


def _bits(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)
