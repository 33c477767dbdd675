"""The wiring of a whole node: no part is missing, and no attribute is set from outside."""

import ast
from pathlib import Path

import pytest

import node
from multiraft.wire import messages as wire
from node.cluster import peer_requests
from node.loop.loop_handle import LoopHandle
from node.subscribers import Subscribers
from tests.node.harness import in_trio, serving

#: Requests of clients that sessions hand to parts of their own.
OF_SESSIONS = {wire.Produce, wire.Fetch, wire.ListOffsets, wire.ReportCorruption}
PACKAGE = Path(node.__file__).parent
WIRING = ["main.py", *sorted(f"assembly/{path.name}" for path in
                             (PACKAGE / "assembly").glob("*.py"))]


@in_trio
async def test_every_request_of_clients_and_nodes_has_a_handler(tmp_path):
    async with serving(tmp_path) as served:
        asked = {shape.kind for shape in wire.REQUESTS.values()} - OF_SESSIONS
        requests = served.admin.requests
        assert asked == requests._handlers.keys() | served.admin.handlers.keys()
        assert not requests._handlers.keys() & served.admin.handlers.keys()
        assert served.peers.handlers.keys() == {
            shape.kind for shape in peer_requests.REQUESTS.values()}
        assert served.peers.bulk.handlers.keys() >= peer_requests.REQUESTS.keys()
        assert not served.peers.control.handlers, "requests of peers arrive on bulk connections"


@in_trio
async def test_every_list_of_subscribers_has_some(tmp_path):
    async with serving(tmp_path) as served:
        log = served.metadata.log
        for news in (log.state_changed, log.partition_left, served.storage.damage_found,
                     served.replicas.checkpoints.completed, served.replicas.compaction.raised):
            assert news._handlers


def assigned_outside(text: str) -> list[str]:
    """Return the assignments to an attribute of something other than ``self``."""
    return [ast.unparse(target) for found in ast.walk(ast.parse(text))
            if isinstance(found, (ast.Assign, ast.AugAssign, ast.AnnAssign))
            for target in (found.targets if isinstance(found, ast.Assign) else [found.target])
            for one in ast.walk(target) if isinstance(one, ast.Attribute)
            and ast.unparse(one.value) != "self"]


#: States that change while the node runs, and how the store was opened.
STATES = {"self.life.phase", "self.clients.sessions.stopping", "store.relaxed"}


@pytest.mark.parametrize("name", WIRING)
def test_the_wiring_sets_no_attribute_of_a_part(name):
    assert set(assigned_outside((PACKAGE / name).read_text())) <= STATES


def test_an_attribute_that_is_set_from_outside_is_found():
    assert assigned_outside("self.a = 1\nself.a.b = c.d = 2\nx: int = 3") == ["self.a.b", "c.d"]


def test_subscribers_hear_of_everything_in_the_order_in_which_they_came():
    heard: list[tuple] = []
    news = Subscribers()
    news.notify("nobody hears this")
    for name in "ab":
        news.subscribe(lambda *args, name=name: heard.append((name, *args)))
    news.notify(1, 2)
    assert heard == [("a", 1, 2), ("b", 1, 2)]


def test_what_one_subscriber_raises_ends_the_call():
    news = Subscribers()
    news.subscribe([].pop)
    news.subscribe(lambda: pytest.fail("it was called"))
    with pytest.raises(IndexError):
        news.notify()


class Loop:
    """A round loop that records the calls that reach it."""

    def __init__(self):
        self.calls: list = []

    def request(self) -> None:
        self.calls.append("request")

    def wrote(self, staged: list) -> bool:
        self.calls.append(staged)
        return True


def test_a_handle_forwards_to_the_loop_that_is_attached():
    handle, loop = LoopHandle(), Loop()
    request = handle.request  # parts hold the method before a loop is attached
    handle.attach(loop)
    request()
    assert handle.wrote(["write"]) is True
    assert loop.calls == ["request", ["write"]]


def test_a_handle_takes_one_loop():
    handle = LoopHandle()
    handle.attach(Loop())
    with pytest.raises(AssertionError, match="one round loop"):
        handle.attach(Loop())
