"""The HTTP port: its replies in each phase of a node, and the cost of abuse."""

import contextlib
import dataclasses
import http.client
import json
import random
import socket
import threading
from collections.abc import Iterator

import pytest
import trio

from node.config import HttpConfig, parse
from node.errors import BadConfig
from node.observability import http as http_module
from node.observability.group_health import GroupSample, Survey
from node.observability.http import Attached, HttpThread
from node.observability.phase import SERVING, STARTING, Life
from tests.node.harness import (
    LIMIT_S,
    Client,
    in_trio,
    make_node,
    one_node_table,
    running,
    until,
)
from tests.ports import free_port


class ClusterView:
    """The port of a node that is not there yet."""

    def __init__(self, **settings: int):
        self.port = free_port()
        self.config = HttpConfig(address=f"127.0.0.1:{self.port}", **settings).validate()
        self.life = Life()
        self.http = HttpThread(self.config, self.life)

    def get(self, path: str, method: str = "GET", **headers: str):
        """(status, headers, body) on a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=LIMIT_S)) as connection:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def raw(self, data: bytes) -> bytes:
        """All that is answered to these bytes until the node closes."""
        with self.connect() as sock:
            sock.sendall(data)
            return rest(sock)


def rest(sock: socket.socket) -> bytes:
    """Everything until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            received += data
    return received


@contextlib.contextmanager
def world(**settings: int) -> Iterator[ClusterView]:
    made = ClusterView(**settings)
    made.http.start()
    try:
        yield made
    finally:
        made.http.stop()


# ---- without a node ------------------------------------------------------------------------------


def test_during_recovery_a_node_is_alive_not_ready_and_says_how_far_it_is():
    with world() as node:
        node.life.recovery.segments_total, node.life.recovery.segments_done = 12, 3
        status, headers, body = node.get("/healthz")
        assert (status, json.loads(body)["healthy"]) == (200, True)
        status, headers, body = node.get("/readyz")
        assert status == 503
        assert headers["Content-Type"] == "application/json"
        assert json.loads(body)["reason"] == "recovering: 3 of 12 segments"
        status, headers, body = node.get("/metrics")
        assert status == 200
        assert b'multiraft_recovery_segments{state="read"} 3.0' in body
        assert b"multiraft_ready 0.0" in body
        assert b"multiraft_appended_records_total" not in body, "nobody knows it yet"


@pytest.mark.parametrize(("request_line", "status"), [
    (b"GET / HTTP/1.1", b"HTTP/1.1 200 OK"), (b"GET /x HTTP/1.1", b"HTTP/1.1 404 Not Found"),
    (b"POST / HTTP/1.1", b"HTTP/1.1 405 Method Not Allowed"),
    (b"GET /readyz HTTP/1.1", b"HTTP/1.1 503 Service Unavailable"),
    (b"no HTTP", b"HTTP/1.1 400 Bad Request")])
def test_a_status_line_has_a_reason_phrase(request_line, status):
    with world() as node:
        answer = node.raw(request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.split(b"\r\n")[0] == status


def test_without_an_address_http_is_off():
    off = HttpThread(HttpConfig(address=""), Life())
    off.start()
    off.stop()
    assert not any(thread.name == "http" for thread in threading.enumerate())


def test_an_address_in_use_is_the_configurations_fault():
    with world() as node:
        with pytest.raises(BadConfig, match=str(node.port)):
            HttpThread(node.config, Life()).start()


def test_a_stopped_port_is_closed_and_may_be_stopped_again():
    with world() as node:
        assert node.get("/")[0] == 200
        node.http.stop()
        with pytest.raises(ConnectionRefusedError):
            node.connect()


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/", 200), ("GET", "/healthz?verbose=1", 200), ("GET", "/nowhere", 404),
    ("GET", "/metrics/../healthz", 404), ("POST", "/metrics", 405), ("DELETE", "/", 405)])
def test_only_reading_and_only_what_there_is(method, path, status):
    with world() as node:
        assert node.get(path, method)[0] == status


def test_head_is_get_without_the_body():
    with world() as node:
        status, headers, body = node.get("/healthz", "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 0


def test_the_format_is_the_one_that_is_asked_for():
    with world() as node:
        plain = node.get("/metrics")
        assert plain[1]["Content-Type"].startswith("text/plain")
        accept = "application/openmetrics-text; version=1.0.0"
        status, headers, body = node.get("/metrics", Accept=accept)
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")


def test_a_connection_serves_many_requests_and_pipelined_ones_in_order():
    with world() as node, node.connect() as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: n\r\n"
                     b"\r\nGET / HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
        said = rest(sock)
    statuses = [line.split()[1] for line in said.splitlines() if line.startswith(b"HTTP/1.1 ")]
    assert statuses == [b"200", b"404", b"200"]


# ---- abuse ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [
    b"\x00\x01\x02\xff" * 100 + b"\r\n\r\n", b"hello\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
    b"GET  /  HTTP/9.9\r\nHost: n\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: n\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: n\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n"],
    ids=["bytes", "words", "no host", "version", "two hosts", "negative", "lengths", "tls"])
def test_what_is_not_http_is_refused_and_closed_and_the_port_lives_on(data):
    with world() as node:
        said = node.raw(data)
        assert said == b"" or said.startswith(b"HTTP/1.1 4")
        assert b"Traceback" not in said
        assert node.get("/")[0] == 200


@pytest.mark.parametrize("head", [
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: n\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: n\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: n\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"],
    ids=["target", "header", "headers"])
def test_a_head_beyond_the_limit_is_refused(head):
    with world(head_bytes_max=4096) as node:
        with node.connect() as sock:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(head)
            said = rest(sock)
        assert said == b"" or said.startswith(b"HTTP/1.1 431")
        assert node.get("/")[0] == 200


@pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n\r\nhello",
                                     b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"])
def test_a_body_is_refused_and_not_read_to_its_end(framing):
    with world() as node:
        said = node.raw(b"POST /metrics HTTP/1.1\r\nHost: n\r\n" + framing)
        assert said.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("body", [b"Content-Length: 5\r\n\r\nhello",
                                  b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n"])
def test_head_with_a_body_gets_its_refusal_without_one_and_the_port_lives_on(body):
    with world() as node:
        said = node.raw(b"HEAD /metrics HTTP/1.1\r\nHost: n\r\n" + body)
        assert said.startswith(b"HTTP/1.1 4") and said.endswith(b"\r\n\r\n")
        assert node.get("/")[0] == 200


def test_a_request_that_never_ends_loses_its_place_and_nobody_elses():
    with world(request_timeout_ms=50, connections_max=2) as node:
        with node.connect() as slow, node.connect() as silent:
            slow.sendall(b"GET / HTTP/1.1\r\nHo")
            assert rest(slow) == b""
            assert rest(silent) == b""
        wait_for_answer(node)


def test_a_connection_that_is_kept_and_not_used_is_closed():
    with world(idle_timeout_ms=50) as node, node.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
        assert rest(sock).startswith(b"HTTP/1.1 200")


def test_who_does_not_read_the_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(http_module, "_INDEX", b"x" * (64 << 20))
    with world(write_timeout_ms=50, connections_max=1) as node, node.connect() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
        wait_for_answer(node, "/healthz")


def wait_for_answer(node: ClusterView, path: str = "/") -> None:
    """Until a new connection is served: the place of another one was given back."""

    async def main():
        def served() -> bool:
            try:
                return node.get(path)[0] == 200
            except (http.client.HTTPException, OSError):
                return False

        await until(served, "a place is free")

    trio.run(main)


def test_connections_beyond_the_limit_are_closed_at_once():
    with world(connections_max=3) as node:
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(node.connect()) for _ in range(3)]
            for sock in held:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
                assert sock.recv(1024).startswith(b"HTTP/1.1 200")
            with node.connect() as fourth:
                assert rest(fourth) == b""
        wait_for_answer(node)


def test_a_storm_of_checkers_that_connect_and_leave_harms_nobody(capfd):
    with world() as node:
        for _ in range(200):
            node.connect().close()
        wait_for_answer(node)
    assert capfd.readouterr() == ("", "")


SEEDS = (
    b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n", b"HEAD /readyz HTTP/1.0\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: n\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: n\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: n\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n")


@pytest.mark.parametrize("seed", range(4))
def test_requests_that_were_tampered_with_end_their_connection_and_nothing_else(seed):
    rng = random.Random(seed)
    with world(request_timeout_ms=20, idle_timeout_ms=20) as node:
        for _ in range(100):
            data = bytearray(b"".join(rng.choices(SEEDS, k=rng.randint(1, 4))))
            for _ in range(rng.choice((0, 1, 2, 5, 20))):
                at = rng.randrange(len(data))
                data[at:at + rng.randint(0, 2)] = rng.choice(
                    (b"\r\n", b" ", b":", b"\0", b"Content-Length: 9\r\n", rng.randbytes(3)))
            with node.connect() as sock, contextlib.suppress(ConnectionError):
                sock.sendall(data)
                said = b"" if rng.random() < 0.2 else rest(sock)
                assert said == b"" or said.startswith(b"HTTP/1.1 "), bytes(data)
        wait_for_answer(node)


# ---- with a node ---------------------------------------------------------------------------------


def attached(node: ClusterView, answer_with=None, silent_ms: int = 0, busy_ms: int = 0):
    """A loop that hands out ``answer_with`` (a ``Sample``-like), or never answers with None."""
    def request(answer) -> None:
        if answer_with is not None:
            answer(answer_with)

    node.life.phase = SERVING
    node.http.attach(Attached(trio.lowlevel.current_trio_token(), request, lambda: silent_ms,
                              lambda: busy_ms))


@in_trio
@pytest.mark.parametrize(("silent_ms", "busy_ms", "says"), [
    (11_000, 0, "round loop"), (0, 11_000, "disk")])
async def test_a_node_whose_loop_or_disk_is_stuck_is_not_healthy(silent_ms, busy_ms, says):
    with world() as node:
        attached(node, None, silent_ms, busy_ms)
        status, _headers, body = await trio.to_thread.run_sync(node.get, "/healthz")
        assert status == 503
        assert says in json.loads(body)["reason"]


@in_trio
async def test_a_loop_that_does_not_answer_leaves_what_needs_no_loop(monkeypatch):
    monkeypatch.setattr(http_module, "ASK_S", 0.05)
    with world() as node:
        attached(node)
        status, _headers, body = await trio.to_thread.run_sync(node.get, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "the round loop does not answer")
        status, _headers, body = await trio.to_thread.run_sync(node.get, "/metrics")
        assert status == 200
        assert b"multiraft_loop_responsive 0.0" in body


@in_trio
async def test_scrapes_of_a_moment_are_rendered_once_for_each_format(monkeypatch):
    rendered: list[str] = []
    render = http_module.metrics.render

    def counted(life, sample, accept):
        rendered.append(accept)
        return render(life, sample, accept)

    monkeypatch.setattr(http_module.metrics, "render", counted)
    monkeypatch.setattr(http_module, "ASK_S", 0.05)
    monkeypatch.setattr(http_module, "SCRAPE_FRESH_MS", 1 << 40)
    with world() as node:
        node.http._scraped_ms = -(1 << 41)
        attached(node)
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(trio.to_thread.run_sync, node.get, "/metrics")
        assert len(rendered) == 1
        node.http._scraped_ms = -(1 << 41)
        await trio.to_thread.run_sync(node.get, "/metrics")
        assert len(rendered) == 2


def test_a_loop_that_has_ended_is_no_crash():
    with world() as node:
        async def end():
            attached(node, None)

        trio.run(end)
        assert node.get("/readyz")[0] == 503
        assert node.get("/metrics")[0] == 200


@contextlib.asynccontextmanager
async def served(tmp_path):
    """A whole node with its port: (node, world)."""
    made = ClusterView()
    config = dataclasses.replace(parse(one_node_table(), tmp_path), http=made.config)
    made.life.phase = STARTING
    made.http.start()
    try:
        async with running(make_node(config, made.life, made.http)) as node:
            await until(lambda: all(map(node.core.status.has_applied_in_term, range(3))),
                        "nothing is behind")
            yield node, made
    finally:
        made.http.stop()


@in_trio
async def test_a_node_that_leads_and_has_everything_is_ready_until_it_stops(tmp_path):
    async with served(tmp_path) as (node, port):
        ask = trio.to_thread.run_sync
        status, _headers, body = await ask(port.get, "/readyz")
        assert (status, json.loads(body)["groups"]) == (200, 3)
        status, _headers, body = await ask(port.get, "/healthz")
        assert (status, json.loads(body)["phase"]) == (200, "serving")
        await node._hand_over()
        status, _headers, body = await ask(port.get, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "stopping")


@in_trio
async def test_a_quarantined_replica_makes_its_node_unready(tmp_path):
    async with served(tmp_path) as (node, port):
        node.core.repair.quarantine(1, "bit rot")
        node.request_round()
        node.admin.group_health._last = None
        status, _headers, body = await trio.to_thread.run_sync(port.get, "/readyz")
        assert status == 503
        assert json.loads(body)["quarantined"] == 1


@in_trio
async def test_metrics_tell_what_happened(tmp_path):
    async with served(tmp_path) as (node, port), await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one", b"two")
        await client.produce(topic + 1000, b"nowhere")
        _status, _headers, body = await trio.to_thread.run_sync(port.get, "/metrics")
        lines = set(body.decode().splitlines())
    assert {
        "multiraft_appended_records_total 2.0", "multiraft_groups 3.0",
        "multiraft_groups_leading 3.0", "multiraft_elections_won_total 3.0",
        "multiraft_client_connections 1.0", "multiraft_ready 1.0", "multiraft_loop_responsive 1.0",
        'multiraft_append_duration_seconds_count{acks="commit"} 1.0',
        'multiraft_rejections_total{reason="UNKNOWN_PARTITION",request="produce"} 1.0',
    } <= lines, "\n".join(sorted(lines))


def test_a_survey_names_no_more_groups_than_its_bound():
    named = GroupSample()
    for group in range(1000):
        named.add(group)
    assert (named.count, len(named.groups)) == (1000, 100)
    assert Survey().behind is not Survey().behind
