"""Fixtures of the client tests: one behaviour, two drivers."""

from __future__ import annotations

from functools import partial

import pytest

from multiraft import client as trio_client
from multiraft.client import blocking
from tests.client.fake_cluster import FakeCluster, ThreadedCluster


class _Sync:
    """Wrapper of the trio client whose methods need no ``await``, so that one test drives both."""

    def __init__(self, target, portal):
        self._target, self._portal = target, portal

    def __getattr__(self, name):
        value = getattr(self._target, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, method, *args, **kwargs):
        return self._portal(method, *args, **kwargs)

    def __enter__(self):
        return _wrap(self._portal(self._target.__aenter__), self._portal)

    def __exit__(self, kind, error, trace):
        return self._portal(self._target.__aexit__, kind, error, trace)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self._portal(self._target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


def _wrap(value, portal):
    if isinstance(value, (trio_client.Client, trio_client.Producer, trio_client.Consumer,
                          trio_client.BatchDelivery)):
        return _Sync(value, portal)
    if isinstance(value, list):
        return [_wrap(item, portal) for item in value]
    return value


class TrioDriver:
    """Trio client in the cluster's own run, called from the test's thread."""

    def __init__(self, world: ThreadedCluster):
        self._world = world

    def __call__(self, fn, *args, **kwargs):
        return _wrap(self._world.run(fn, *args, **kwargs), self)

    def client(self, servers, **options):
        """A client to be used with ``with``."""
        return _Sync(trio_client.Client(servers, **options), self)


class BlockingDriver:
    """Blocking client in the test's thread."""

    def __init__(self, world: ThreadedCluster):
        self._world = world

    def client(self, servers, **options):
        """A client to be used with ``with``."""
        return blocking.Client(servers, **options)


@pytest.fixture
def world():
    """A fake cluster in its own thread."""
    threaded = ThreadedCluster()
    with threaded:
        yield threaded


@pytest.fixture
def cluster(world) -> FakeCluster:
    """The fake cluster; its state may be read, and changed through ``world.call``."""
    return world.cluster


@pytest.fixture(params=["trio", "blocking"])
def driver(request, world):
    """Driver of the trio client or of the blocking client."""
    return {"trio": TrioDriver, "blocking": BlockingDriver}[request.param](world)


@pytest.fixture
def client(driver, cluster):
    """A client of the cluster."""
    with driver.client(cluster.servers(), client_id="test") as opened:
        yield opened
