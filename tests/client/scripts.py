"""Scripts for fake nodes, shared by the tests of both clients, and counts of requests."""

from __future__ import annotations

from multiraft.wire import messages
from multiraft.wire.messages import OPS


def once(op: str, verdict):
    """Return a script: ``verdict`` for the first request of ``op``, then normal service."""
    seen = []

    def script(node, event, connection):
        if OPS[type(event.request)] == op and not seen:
            seen.append(node)
            return verdict(event) if callable(verdict) else verdict
        return None

    return script


def produced(cluster) -> int:
    """Return the number of produce requests that have arrived."""
    return sum(isinstance(request, messages.Produce) for _, request in cluster.requests)


def values_of(batches) -> list[bytes]:
    return [record.value for batch in batches for record in batch.records()]
