"""Canary: a client beside hostile or failing ones, which must not be affected by them.

Contract.  ``Canary`` appends one record after the other to a topic of its own, in a thread, until
``stop``; then every record was acknowledged, in order, and none took longer than ``LATE_S``.
"""

from __future__ import annotations

import threading
import time

from multiraft.client import blocking
from multiraft.errors import MultiRaftError

#: A longer wait counts as an effect.  Elections and disks of a busy test machine, which may stall
#: for seconds, stay below.
LATE_S = 10.0


class Canary:
    """Client that appends from construction to ``stop``; use it with ``with``."""

    def __init__(self, client: blocking.Client, topic: str):
        self._client = client
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sing, name="canary")
        self.count = 0
        self.slowest_s = 0.0
        self.failure: BaseException | None = None

    def __enter__(self) -> Canary:
        self._thread.start()
        return self

    def __exit__(self, kind, *_: object) -> None:
        self.stop()
        if kind is None:
            self.check()

    def stop(self) -> None:
        """Stop appending."""
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Check that every record was acknowledged in order and in time."""
        assert self.failure is None, f"the canary fell silent: {self.failure!r}"
        assert self.count, "it never sang"
        assert self.slowest_s < LATE_S, f"an append took {self.slowest_s:.1f} s"

    def _sing(self) -> None:
        try:
            with self._client as client, client.producer() as producer:
                while not self._stopping.is_set():
                    began = time.monotonic()
                    receipt = producer.send(blocking.Record(self._topic, b"x")).wait()
                    assert receipt.base_offset == self.count
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.count += 1
        except (AssertionError, OSError, MultiRaftError) as error:
            self.failure = error
