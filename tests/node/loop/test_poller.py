"""The poller of hot sources: the handlers that a poll calls, their number, and the order of the
rest."""

import socket

import pytest

from node.loop import poller as arrivals_module
from node.loop.poller import POLL_NS, Poller


class Sources:
    """Readable sockets whose handlers return a given value and take a given time."""

    def __init__(self, count: int, monkeypatch):
        self.poller = Poller()
        self.now_ns = 0
        self.took_ns = 0
        self.called: list[int] = []
        self.ends: list[tuple[socket.socket, socket.socket]] = []
        self.again: set[int] = set()
        monkeypatch.setattr(arrivals_module, "monotonic_ns", lambda: self.now_ns)
        for number in range(count):
            near, far = socket.socketpair()
            far.send(b"x")
            self.ends.append((near, far))
            self.poller.add(near.fileno(), lambda number=number: self.take(number))

    def take(self, number: int) -> bool:
        """Handle one readable source."""
        self.called.append(number)
        self.now_ns += self.took_ns
        if number in self.again:
            self.poller.again(self.ends[number][0].fileno())
        return True

    def close(self) -> None:
        """Close all sockets and the poller."""
        self.poller.close()
        for pair in self.ends:
            for end in pair:
                end.close()


@pytest.fixture
def sources(monkeypatch):
    world = Sources(6, monkeypatch)
    yield world
    world.close()


def test_one_poll_ends_when_its_time_is_over_and_the_rest_is_first_the_next_time(sources):
    sources.took_ns = POLL_NS // 2 + 1
    sources.poller.poll()
    assert len(sources.called) == 2 and sources.poller.left
    sources.poller.poll()
    sources.poller.poll()
    assert sorted(sources.called) == [0, 1, 2, 3, 4, 5], "nobody is called twice before the others"


def test_a_source_with_a_rest_is_called_though_nothing_new_has_come(sources):
    for near, _ in sources.ends:
        near.recv(1)
    assert sources.poller.poll() is None
    sources.poller.again(sources.ends[3][0].fileno())
    assert sources.poller.left
    assert sources.poller.poll() and sources.called == [3]
    assert not sources.poller.left and sources.poller.poll() is None


def test_a_source_that_always_has_a_rest_is_called_once_a_poll(sources):
    sources.again = {1}
    for _ in range(3):
        sources.called.clear()
        sources.poller.poll()
        assert sorted(sources.called) == [0, 1, 2, 3, 4, 5]


def test_a_source_that_is_removed_has_no_rest(sources):
    file_number = sources.ends[0][0].fileno()
    sources.poller.again(file_number)
    sources.poller.remove(file_number)
    assert not sources.poller.left
