"""Results of metadata commands: the same value on every replica, refusals included.

Contract.  An error of the client is a ``Result`` with a code, never an exception: all replicas
agree on it, and it changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.wire.errors import Code, ErrorDetail


class Result(NamedTuple):
    """The outcome of a command.

    ``value`` by command: the ``NodeRecord`` registered or removed, the ``Topic`` created or
    deleted, ``ProducerIds``, ``ProducerIdentity``, True if settings changed; None for
    the others and for refusals, which changed nothing and have an ``error``.
    """

    code: Code
    value: Any = None
    error: ErrorDetail | None = None


def refused(code: Code, text: str, limit: int = -1, value: int = -1) -> Result:
    """Return a refusal with ``code`` and the reason ``text``; ``limit`` and ``value`` are for the
    client, -1 = none."""
    return Result(code, None, ErrorDetail(text, limit=limit, value=value))


def over(name: str, limit: int, value: int) -> Result:
    """Return the refusal of a command after which ``name`` would be ``value``, above ``limit``."""
    return refused(Code.LIMIT_EXCEEDED, f"{name}: {value} would exceed the limit of {limit}",
                   limit, value)
