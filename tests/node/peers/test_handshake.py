"""The handshake of two nodes: proofs, certificates, and no message stepped before them."""

import functools
import os
from types import SimpleNamespace

import pytest
import trio

from multiraft.errors import ConfigError
from multiraft.raft.messages import VoteRequest
from multiraft.wire import messages as wire
from multiraft.wire.frames import FrameReader, encode_frame
from multiraft.wire.messages import Hello
from node.peers import append_links as peers_module
from node.peers import codec
from node.peers.handshake import Introduction, NotAccepted, Reception, next_header
from node.peers.security import Security, node_name
from node.security_config import SecurityConfig, require_protection
from tests.certificates import Authority
from tests.node.harness import attend, in_trio, until
from tests.node.peers.test_append_links import CLUSTER, REPLY, Receiver, Sender

SECRET = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 64
HELLO = Hello("append", CLUSTER, 1, 7)


def secret_file(tmp_path, *secrets: str) -> SecurityConfig:
    path = tmp_path / f"secret-{len(os.listdir(tmp_path))}"
    path.write_text("\n".join(secrets) + "\n")
    return SecurityConfig(peer_secret=str(path))


def certificates(authority: Authority, node: int, names: tuple[str, ...] = ()) -> SecurityConfig:
    files = authority.issue(*(names or (node_name(node, CLUSTER),)))
    return SecurityConfig(peer_ca=files.ca, peer_certificate=files.certificate, peer_key=files.key)


def said(frame: bytes) -> dict:
    """Return the header of one frame."""
    reader = FrameReader()
    room = reader.buffer_for_receive()
    room[:len(frame)] = frame
    reader.received(len(frame))
    return reader.next_frame().header


def meeting(dialler: SecurityConfig, acceptor: SecurityConfig, hello: Hello = HELLO):
    """Return both sides of node 1's handshake with node 2, after the hello."""
    introduction = Introduction(Security(dialler, CLUSTER), hello, 2)
    reception = Reception(Security(acceptor, CLUSTER), 2, 9,
                          wire.read_hello(said(introduction.first())))
    return introduction, reception


def welcome(proof: bytes | None, node: int = 2) -> dict:
    return wire.welcome_header(wire.Welcome(CLUSTER, node, 9, proof=proof))


def meet(dialler: SecurityConfig, acceptor: SecurityConfig) -> bool:
    introduction, reception = meeting(dialler, acceptor)
    proof = reception.proven(said(introduction.answer(said(reception.challenge()))))
    introduction.answer(welcome(proof))
    return introduction.accepted


# ---- proofs ------------------------------------------------------------------------------------


def test_nodes_with_the_same_secret_believe_each_other(tmp_path):
    assert meet(secret_file(tmp_path, SECRET), secret_file(tmp_path, SECRET))


def test_while_secrets_change_nodes_with_either_order_believe_each_other(tmp_path):
    steps = [(SECRET,), (SECRET, OTHER), (OTHER, SECRET), (OTHER,)]
    for before, after in zip(steps, steps[1:]):
        one, two = secret_file(tmp_path, *before), secret_file(tmp_path, *after)
        assert meet(one, two)
        assert meet(two, one)
    with pytest.raises(NotAccepted, match="is wrong"):
        meet(secret_file(tmp_path, SECRET), secret_file(tmp_path, OTHER))


@pytest.mark.parametrize("change", [
    {"node": 3}, {"boot_epoch": 8}, {"connection": "liveness"}, {"cluster": bytes(15) + b"x"},
    {"nonce": bytes(32)}])
def test_a_proof_is_worth_nothing_with_another_hello(tmp_path, change):
    config = secret_file(tmp_path, SECRET)
    introduction, reception = meeting(config, config)
    proof = said(introduction.answer(said(reception.challenge())))
    cluster = change.pop("cluster", CLUSTER)
    other = Reception(Security(config, cluster), 2, 9, reception._hello._replace(**change))
    other._challenge = reception._challenge
    with pytest.raises(NotAccepted, match="is wrong"):
        other.proven(proof)
    assert reception.proven(proof), "the proof itself is right"


@pytest.mark.parametrize("change", [{"node": 5}, {"boot_epoch": 1}, {"nonce": bytes(32)}])
def test_a_proof_is_worth_nothing_for_another_challenge(tmp_path, change):
    config = secret_file(tmp_path, SECRET)
    introduction, reception = meeting(config, config)
    proof = said(introduction.answer(said(reception.challenge())))
    reception._challenge = reception._challenge._replace(**change)
    with pytest.raises(NotAccepted, match="is wrong"):
        reception.proven(proof)


def test_a_proof_cannot_be_sent_back_as_one_s_own(tmp_path):
    """A listener without the secret lets the dialler prove itself and echoes the proof."""
    config = secret_file(tmp_path, SECRET)
    introduction, reception = meeting(config, config)
    proof = said(introduction.answer(said(reception.challenge())))["proof"]
    with pytest.raises(NotAccepted, match="proof of the cluster's secret is wrong"):
        introduction.answer(welcome(proof))


@pytest.mark.parametrize(("answer", "why"), [
    (welcome(None), "does not prove"),
    (welcome(bytes(32)), "does not prove"),
    (welcome(None, node=3), "node 3 answers"),
    ({"op": "refused", "code": 9, "text": "no", "versions": [1]}, "refuses this node: no"),
    ({"op": "proof", "proof": bytes(32)}, "not answer as a node"),
    ({"op": "challenge", "node": 2, "boot_epoch": 1, "nonce": b"short"}, "not answer as a node"),
])
def test_a_dialler_with_a_secret_goes_on_only_with_who_proves_it(tmp_path, answer, why):
    introduction, _ = meeting(secret_file(tmp_path, SECRET), SecurityConfig())
    with pytest.raises(NotAccepted, match=why):
        introduction.answer(answer)
    assert not introduction.accepted


def test_only_one_proof_is_given(tmp_path):
    config = secret_file(tmp_path, SECRET)
    introduction, reception = meeting(config, config)
    introduction.answer(said(reception.challenge()))
    with pytest.raises(NotAccepted, match="second proof"):
        introduction.answer(said(reception.challenge()))


def test_a_secret_on_one_side_only_is_explained(tmp_path):
    config = secret_file(tmp_path, SECRET)
    _, reception = meeting(SecurityConfig(), config)
    with pytest.raises(NotAccepted, match="security.peer_secret"):
        reception.challenge()
    introduction, _ = meeting(SecurityConfig(), SecurityConfig())
    _, reception = meeting(config, config)
    with pytest.raises(NotAccepted, match="none is configured here"):
        introduction.answer(said(reception.challenge()))


# ---- over sockets ------------------------------------------------------------------------------


def connected_test(make):
    """Test one message from node 1 to node 2 with the configuration of ``make(tmp_path)``."""

    @in_trio
    async def run(tmp_path):
        receiver_config, sender_config = make(tmp_path)
        receiver = Receiver(receiver_config)
        sender = Sender(receiver.address.port, security=sender_config)
        async with trio.open_nursery() as nursery:
            await nursery.start(receiver.listener.serve)
            nursery.start_soon(attend, receiver.poller, receiver.round)
            nursery.start_soon(sender.peers.run)
            await until(lambda: sender.core.connections == [("up", 2)])
            sender.say(REPLY)
            await until(lambda: receiver.core.stepped == [(1, REPLY)])
            nursery.cancel_scope.cancel()

    return run


def both(tmp_path):
    authority = Authority(tmp_path)
    secret = secret_file(tmp_path, SECRET).peer_secret
    return [SecurityConfig(peer_secret=secret, peer_ca=config.peer_ca,
                           peer_certificate=config.peer_certificate, peer_key=config.peer_key)
            for config in (certificates(authority, 2), certificates(authority, 1))]


test_messages_pass_with_a_secret = connected_test(
    lambda tmp_path: [secret_file(tmp_path, SECRET)] * 2)
test_messages_pass_with_both = connected_test(both)


@in_trio
async def test_large_frames_pass_inside_tls(tmp_path):
    """Frames larger than a socket's buffer, sent at once and by the drain task."""
    authority = Authority(tmp_path)
    receiver = Receiver(certificates(authority, 2))
    sender = Sender(receiver.address.port, security=certificates(authority, 1))
    sender.store.size = 1 << 20
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(sender.peers.run)
        await until(lambda: sender.core.connections == [("up", 2)])
        for index in range(9, 29):
            sender.say(peers_module.Append(1, 1, 1, index, 1, index + 1, 0), REPLY)
        await until(lambda: len(receiver.core.stepped) == 40)
        assert [message.last_index for _, message in receiver.core.stepped[::2]] == list(
            range(10, 30))
        nursery.cancel_scope.cancel()


def refused_cases(tmp_path):
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    secret = secret_file(tmp_path, SECRET)
    right = certificates(authority, 2)
    believes = functools.partial(SecurityConfig, peer_ca=str(authority.path))
    foreign = certificates(stranger, 1)
    return {
        "no secret": (secret, SecurityConfig(), "security.peer_secret"),
        "another secret": (secret, secret_file(tmp_path, OTHER), "is wrong"),
        "no TLS": (right, SecurityConfig(), "requires TLS"),
        "another CA": (right, believes(peer_certificate=foreign.peer_certificate,
                                       peer_key=foreign.peer_key), "no TLS"),
        "another node's certificate": (right, certificates(authority, 3), "does not name node-1."),
        "a host's certificate": (right, certificates(authority, 1, ("localhost",)),
                                 "does not name node-1."),
        "an expired certificate": (right, expired(authority), "no TLS"),
    }


def expired(authority: Authority) -> SecurityConfig:
    files = authority.issue(node_name(1, CLUSTER), expired=True)
    return SecurityConfig(peer_ca=files.ca, peer_certificate=files.certificate, peer_key=files.key)


@in_trio
@pytest.mark.parametrize("case", ["no secret", "another secret", "no TLS", "another CA",
                                  "another node's certificate", "a host's certificate",
                                  "an expired certificate"])
async def test_who_cannot_prove_who_it_is_reaches_nothing(tmp_path, caplog, case):
    receiver_config, sender_config, why = refused_cases(tmp_path)[case]
    receiver = Receiver(receiver_config)
    sender = Sender(receiver.address.port, security=sender_config)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(sender.peers.run)
        await until(lambda: receiver.port.refused >= 2, "it is refused again and again")
        nursery.cancel_scope.cancel()
    assert not receiver.core.stepped
    assert not sender.core.connections
    reasons = [record.reason for record in caplog.records
               if record.getMessage() in ("peer_connection_refused", "foreign_client_rejected")]
    assert reasons
    assert all(why in reason for reason in reasons), reasons
    assert SECRET not in caplog.text and OTHER not in caplog.text


@in_trio
@pytest.mark.parametrize("opening", ["hello and vote", "proof and vote", "vote"])
async def test_a_forged_vote_request_is_never_stepped(tmp_path, opening):
    """No message of an unauthenticated sender reaches consensus, whatever precedes it."""
    receiver = Receiver(secret_file(tmp_path, SECRET))
    vote = b"".join(codec.frame([codec.encode(
        VoteRequest(1, 1, codec.TERM_MAX, 1, 1, False, False), 0)]))
    hello = b"".join(encode_frame(wire.hello_header(HELLO._replace(nonce=bytes(32)))))
    proof = b"".join(encode_frame(wire.proof_header(wire.Proof(bytes(32)))))
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        stream = await trio.open_tcp_stream("127.0.0.1", receiver.address.port)
        async with stream:
            await stream.send_all({"hello and vote": hello, "proof and vote": hello + proof,
                                   "vote": b""}[opening] + vote)
            while await stream.receive_some():
                pass
        await until(lambda: receiver.port.refused == 1)
        nursery.cancel_scope.cancel()
    assert not receiver.core.stepped
    assert not receiver.adopted


@in_trio
async def test_what_was_reloaded_holds_for_new_connections_and_old_ones_live(tmp_path):
    config = secret_file(tmp_path, SECRET)
    receiver = Receiver(config)
    sender = Sender(receiver.address.port, security=secret_file(tmp_path, SECRET))
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(sender.peers.run)
        await until(lambda: sender.core.connections == [("up", 2)])
        with open(config.peer_secret, "w") as file:
            file.write(OTHER)
        receiver.port._security.reload()
        sender.say(REPLY)
        await until(lambda: receiver.core.stepped == [(1, REPLY)])
        stranger = Sender(receiver.address.port, security=secret_file(tmp_path, SECRET))
        nursery.start_soon(stranger.peers.run)
        await until(lambda: receiver.port.refused)
        assert sender.core.connections == [("up", 2)]
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_stranger_that_says_nothing_is_closed_at_the_deadline(tmp_path):
    receiver = Receiver(certificates(Authority(tmp_path), 2), hello_ms=50)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        async with await trio.open_tcp_stream("127.0.0.1", receiver.address.port) as stream:
            assert await stream.receive_some() == b""
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_handshake_that_ends_early_is_no_handshake():
    near, far = trio.socket.socketpair()
    with near, far:
        near.close()
        sock = SimpleNamespace(fileno=far.fileno, recv_into=lambda _room: 0)
        assert await next_header(sock, FrameReader()) is None


# ---- files and addresses -----------------------------------------------------------------------


@pytest.mark.parametrize(("content", "why"), [
    ("", "0 secrets"), ("short\n", "5 characters"),
    ("\n".join([SECRET, OTHER, "a" * 40]), "3 secrets"), (None, "cannot read")])
def test_a_secret_that_is_none_is_refused_and_never_quoted(tmp_path, content, why):
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=why) as raised:
        Security(SecurityConfig(peer_secret=str(path)), CLUSTER)
    assert "short" not in str(raised.value) and SECRET not in str(raised.value)


def test_a_reload_that_fails_changes_nothing(tmp_path):
    config = secret_file(tmp_path, SECRET)
    security = Security(config, CLUSTER)
    with open(config.peer_secret, "w") as file:
        file.write("short")
    with pytest.raises(ConfigError):
        security.reload()
    assert security.secrets == (SECRET.encode(),)


@pytest.mark.parametrize(("config", "says"), [
    (SecurityConfig(peer_ca="ca"), "come together"),
    (SecurityConfig(client_key="key"), "come together"),
    (SecurityConfig(client_ca="ca"), "needs client_certificate")])
def test_files_that_need_each_other_are_named_together(config, says):
    with pytest.raises(ConfigError, match=says):
        config.validate()


@pytest.mark.parametrize(("client", "peer", "config", "says"), [
    ("127.0.0.1", "::1", SecurityConfig(), ""),
    ("localhost", "127.0.0.9", SecurityConfig(), ""),
    ("127.0.0.1", "10.0.0.1", SecurityConfig(), "peer address 10.0.0.1"),
    ("10.0.0.1", "127.0.0.1", SecurityConfig(), "client address 10.0.0.1"),
    ("127.0.0.1", "node-1.example.org", SecurityConfig(), "peer address"),
    ("0.0.0.0", "127.0.0.1", SecurityConfig(peer_secret="s"), "client address"),
    ("10.0.0.1", "10.0.0.1", SecurityConfig(insecure=True), ""),
    ("127.0.0.1", "10.0.0.1", SecurityConfig(peer_secret="s"), ""),
    ("10.0.0.1", "10.0.0.1", SecurityConfig(peer_certificate="c", client_certificate="c"), "")])
def test_an_address_that_others_reach_needs_protection_or_a_word(client, peer, config, says):
    if not says:
        require_protection(config, client, peer)
        return
    with pytest.raises(ConfigError, match=says) as raised:
        require_protection(config, client, peer)
    assert "insecure = true" in str(raised.value), "the way out is named"
