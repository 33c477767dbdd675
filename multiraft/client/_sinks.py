"""Operations about sinks: runs are opened, committed, given up, looked up.

Contract.  As ``_operations.py``, which takes in ``SinkOperations``; the other two classes are what
the clients offer of it.  All of these may be repeated: a run that is opened twice by its nonce is
opened once, and what was decided stays so.
"""

from __future__ import annotations

from typing import Generator

from multiraft.wire import sinks


class SinkOperations:
    """Part of ``Operations``, which has ``_ask``."""

    def sink_request(self, request: sinks.Request) -> Generator:
        """-> the reply to ``request``, from whoever answers it.  Raises ``AmbiguousOutcome`` when
        one that changes the ledger was not answered, and nobody could be asked again in time."""
        return (yield from self._ask(request))


class BlockingSinks:
    """Part of the blocking client."""

    def sink_request(self, request: sinks.Request) -> sinks.Reply:
        """Ask one of ``multiraft.wire.sinks``."""
        return self._run(self._operations.sink_request(request))


class AsyncSinks:
    """Part of the trio client."""

    async def sink_request(self, request: sinks.Request) -> sinks.Reply:
        """Ask one of ``multiraft.wire.sinks``."""
        return await self._run(self._operations.sink_request(request))
