"""Messages are stamped with the pass of the event loop in which they arrive, not with the last
round."""

from __future__ import annotations

import trio

from node.clock import monotonic_ms
from node.loop.loop_time import LoopTime

SILENCE_MS = 30


class Core:
    def __init__(self):
        self.now_ms = 0

    def set_now(self, now_ms):
        assert now_ms >= self.now_ms
        self.now_ms = now_ms


def test_after_a_silence_it_is_later():
    core = Core()

    async def main():
        began_ms = monotonic_ms()
        await trio.sleep(SILENCE_MS / 1000)
        assert began_ms + SILENCE_MS - 1 <= core.now_ms <= monotonic_ms()

    trio.run(main, instruments=[LoopTime(core)])
