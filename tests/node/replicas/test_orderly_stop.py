"""The order of a stop, without trio."""

from types import SimpleNamespace

import pytest

from node.replicas.orderly_stop import OrderlyStop


class Node:
    """The parts of a node that stops; they record their calls, in order."""

    def __init__(self):
        self.calls: list = []
        self.status = SimpleNamespace(led_count=3)
        self.applier, self.rounds = (
            SimpleNamespace(stop=lambda name=name: self.calls.append(name))
            for name in ("applier", "rounds"))
        self.stop = OrderlyStop(self, self, lambda: self.calls.append("announce"), self,
                                self.applier, self.rounds, self._write, self, 700)

    def info(self, event, extra):
        self.calls.append((event, extra["groups_leading"]))

    async def run(self, timeout_ms):
        self.calls.append(("drain", timeout_ms))
        self.status.led_count = 0

    @property
    def stopping(self):
        raise AssertionError("only set")

    @stopping.setter
    def stopping(self, value):
        self.calls.append(("stopping", value))

    async def _write(self):
        self.calls.append("changes")


def test_a_node_leads_until_others_do_and_answers_before_its_last_round():
    node = Node()
    with pytest.raises(StopIteration):
        node.stop.run().send(None)
    assert node.calls == ["announce", ("shutdown_started", 3), ("drain", 700), ("stopping", True),
                          "applier", "rounds", "changes", ("node_stopped", 0)]
