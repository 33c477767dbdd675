"""Encoded responses to requests for the metadata of all topics, until something in them changes.

Contract. ``found`` returns a response that was built since the last change of anything in it, and
``response`` builds one if there is none. Requests that want the same response at a time share one
that began after they arrived. The ``signature`` stands for all that responses say: it is equal as
long as none of that changes.

Theory. Clients ask for all topics at each start, after each change of a leader and every few
minutes. Building and encoding 12,000 partitions takes tens of milliseconds of the event loop, and
thousands of clients may ask at once. The same bytes are sent to all of them.

Invariants. The cache holds at most ``CACHE_BYTES_MAX``; the response that was used least recently
goes first, and a larger one is not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import trio

from multiraft.kafka.requests import EncodedMessage

#: Bytes of all responses that are kept. One of 50,000 partitions with three replicas, the most that
#: an answer has, takes 2.5 MB, and the clients of a cluster use a few versions.
CACHE_BYTES_MAX = 16 << 20


class _Build:
    """A response that is being built."""

    __slots__ = ("done", "response")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.response: Any = None  # None = it failed, or its client is gone


class MetadataCache:
    """The responses of one node, by what was asked for."""

    def __init__(self, signature: Callable[[], Hashable], bytes_max: int = CACHE_BYTES_MAX):
        self._signature = signature
        self._bytes_max = bytes_max
        self._of: Hashable = None  # the signature of all responses that are kept
        self._kept: dict[Hashable, EncodedMessage] = {}  # the least recently used one is first
        self._builds: dict[Hashable, _Build] = {}
        self.bytes = 0  # of the responses that are kept
        self.built = 0  # responses, since the start

    def found(self, key: Hashable) -> EncodedMessage | None:
        """Return the response for what ``key`` stands for, None if it has to be built.  O(1)."""
        if self._kept and self._of != self._signature():
            self._kept.clear()
            self.bytes = 0
        response = self._kept.pop(key, None)
        if response is not None:
            self._kept[key] = response
        return response

    async def response(self, key: Hashable, build: Callable[[], Awaitable[Any]]) -> Any:
        """Return the response for what ``key`` stands for, by ``build`` if there is none. Raises
        what ``build`` raises."""
        has_waited = False
        while True:
            known = self.found(key)
            if known is not None:
                return known
            under_way = self._builds.get(key)
            if under_way is None:
                return await self._built(key, build)
            await under_way.done.wait()
            if has_waited and under_way.response is not None:
                return under_way.response  # its build began after this request arrived
            has_waited = True

    async def _built(self, key: Hashable, build: Callable[[], Awaitable[Any]]) -> Any:
        mine = self._builds[key] = _Build()
        before = self._signature()
        try:
            mine.response = await build()
            self.built += 1
        finally:
            del self._builds[key]
            mine.done.set()
        if type(mine.response) is EncodedMessage and before == self._signature():
            self._keep(key, mine.response, before)
        return mine.response

    def _keep(self, key: Hashable, response: EncodedMessage, signature: Hashable) -> None:
        """Keep a response, in place of the least recently used ones if there is too little
        space."""
        if self._of != signature:
            self._kept.clear()
            self.bytes, self._of = 0, signature
        if len(response.data) > self._bytes_max:
            return
        self._kept[key] = response
        self.bytes += len(response.data)
        while self.bytes > self._bytes_max:
            self.bytes -= len(self._kept.pop(next(iter(self._kept))).data)
