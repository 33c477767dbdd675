"""Proofs of faults: for each kind, the smallest effect that must be visible while it is active.

Contract.  ``PROOFS`` has one function for each kind of fault; it injects the fault into a healthy
cluster, checks the effect from outside the node, heals, checks that the effect is gone, and returns
what was seen.  ``NoBite`` names an effect that was not seen.  No proof depends on how well a node
survives.

Theory.  A fault without an effect makes a suite prove nothing, and no test would fail.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from chaos.backends import host, throttle
from chaos.backends.backend import (
    BIT_ROT,
    CLIENTS,
    CLOCK,
    DELAY,
    FAILED_DISK,
    FULL_DISK,
    HUNG_DISK,
    KILL,
    LEADERSHIP,
    LOSS,
    MEMBERSHIP,
    PARTITION,
    PAUSE,
    PLACEMENT,
    POWER_LOSS,
    RESET,
    SLOW_DISK,
    STOP,
    BackendError,
    Delay,
    Link,
)
from chaos.backends.cluster import Cluster
from chaos.nemeses import rot
from multiraft.client import blocking
from multiraft.errors import MultiRaftError

#: No answer within this time counts as silence: a healthy node takes milliseconds.
SILENCE_S = 1.0
#: Within this time a healthy node answers, and the end of a node is noticed.
SOON_S = 60.0
PROBE_PORT = 9999
DATAGRAMS = 200
#: Wait for datagrams after they were sent: several times the longest delay.
LATE_S = 0.5
#: Syncs of a disk that is not slowed, of which the fastest counts.
SYNCS = 5
HOUR_MS = 3_600_000
#: Exit status of a node whose disk failed (docs/node.md).
DISK_FAILED = 4

#: Writes a file and syncs it, as a process of the node's cgroup.
_WRITER = """
import os, sys
sys.stdin.readline()
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
os.write(file, bytes(int(sys.argv[2])))
os.fdatasync(file)
"""


class NoBite(AssertionError):
    """Raised for a fault that has no effect, or that does not end."""


def require(seen: bool, what: str) -> None:
    """Raise ``NoBite(what)`` unless the effect was seen."""
    if not seen:
        raise NoBite(what)


# -- processes ------------------------------------------------------------------------------------


def prove_kill(cluster: Cluster) -> str:
    """Kill node 1; prove that its process is gone, by the signal, and that it starts again."""
    cluster.kill(1)
    require(not cluster.is_running(1) and cluster.exits()[-1].status == -9, "node 1 lives")
    cluster.start(1)
    require(cluster.is_running(1), "node 1 does not start again")
    return "the process ended by SIGKILL"


def prove_stop(cluster: Cluster) -> str:
    """Stop node 1; prove that its process ends, and that its log shows an orderly shutdown. Start
    it again."""
    start = cluster.log_path(1).stat().st_size
    cluster.stop(1)
    require(not cluster.is_running(1), "node 1 lives")
    said = cluster.log_path(1).read_bytes()[start:]
    require(b"stop" in said, f"node 1 does not say that it was stopped: {said[-300:]!r}")
    cluster.start(1)
    return "the process ended in order"


def prove_pause(cluster: Cluster) -> str:
    """Pause node 1; prove that its process exists and does not answer, and answers again once it is
    resumed."""
    cluster.pause(1)
    require(cluster.is_running(1) and not _answers(cluster, 1), "node 1 answers while it is paused")
    cluster.resume(1)
    _require_answer(cluster, 1)
    return "no answer while it was paused"


# -- links ----------------------------------------------------------------------------------------


def prove_partition(cluster: Cluster) -> str:
    """Prove that one direction between nodes is cut and the other one not; the same between clients
    and a node."""
    cluster.cut([Link(2, 1)])
    lost, kept = _datagrams(cluster, 2, 1), _datagrams(cluster, 1, 2)
    require(not lost and len(kept) == DATAGRAMS,
            f"{len(lost)} datagrams came through the cut link, {len(kept)} through the other")
    cluster.cut([Link(CLIENTS, 1), Link(1, CLIENTS)])
    require(_connect(cluster, 1) == "silence", "a client reaches node 1")
    cluster.cut(())
    require(len(_datagrams(cluster, 2, 1)) == DATAGRAMS and _connect(cluster, 1) == "open",
            "the cut is not healed")
    return f"none of {DATAGRAMS} datagrams, all of them the other way"


def prove_loss(cluster: Cluster) -> str:
    """Prove that about the given share of datagrams is lost."""
    cluster.lose([Link(2, 1)], 0.5)
    arrived = len(_datagrams(cluster, 2, 1))
    require(DATAGRAMS * 0.25 < arrived < DATAGRAMS * 0.75, f"{arrived} of {DATAGRAMS} arrived")
    cluster.lose((), 0.0)
    require(len(_datagrams(cluster, 2, 1)) == DATAGRAMS, "the loss is not healed")
    return f"{arrived} of {DATAGRAMS} datagrams arrived at probability 0.5"


def prove_delay(cluster: Cluster) -> str:
    """Prove that datagrams arrive later, in order; and out of order with reordering."""
    cluster.delay([Link(2, 1)], Delay(80.0))
    held = _datagrams(cluster, 2, 1)
    require(len(held) == DATAGRAMS, f"{len(held)} of {DATAGRAMS} arrived")
    least_ms = min(late_ms for _, late_ms in held)
    require(least_ms >= 79, f"the first came after {least_ms:.1f} ms")
    require([number for number, _ in held] == sorted(number for number, _ in held),
            "datagrams overtook each other")
    cluster.delay([Link(2, 1)], Delay(40.0, 40.0, reorder=True))
    mixed = [number for number, _ in _datagrams(cluster, 2, 1)]
    overtaken = sum(later < earlier for earlier, later in zip(mixed, mixed[1:]))
    require(overtaken > DATAGRAMS / 10, f"{overtaken} datagrams were overtaken")
    cluster.delay((), None)
    require(len(_datagrams(cluster, 2, 1)) == DATAGRAMS, "packets are still held")
    return f"at least {least_ms:.0f} ms of 80; {overtaken} of {DATAGRAMS} overtaken"


def prove_reset(cluster: Cluster) -> str:
    """Prove that connections are refused at once, and that open ones end."""
    with socket.create_connection(_peer(cluster, 1), SOON_S) as open_one:
        cluster.reset([Link(CLIENTS, 1)])
        require(_connect(cluster, 1) == "reset", "a new connection is not reset")
        open_one.settimeout(SOON_S)
        try:
            open_one.sendall(b"?")
            ended = open_one.recv(1) == b""
        except ConnectionError:
            ended = True
        require(ended, "an open connection stays open")
    cluster.reset(())
    require(_connect(cluster, 1) == "open", "connections are still reset")
    return "an open connection ended, new ones were refused"


# -- disks ----------------------------------------------------------------------------------------


def prove_power_loss(cluster: Cluster) -> str:
    """Prove that synced data survives and unsynced data is gone."""
    directory = cluster.disk_directory(1)
    _write(directory / "synced", b"kept", sync=True)
    _write(directory / "unsynced", b"lost")
    with (directory / "synced").open("ab") as file:
        file.write(b" and lost")
    cluster.power_loss([1])
    require(not cluster.is_running(1), "node 1 lives")
    require((directory / "synced").read_bytes() == b"kept",
            f"synced and appended to: {(directory / 'synced').read_bytes()!r}")
    require(not (directory / "unsynced").exists(), "a file that was not synced is there")
    (directory / "synced").unlink()
    cluster.start(1)
    return "an unsynced file and an unsynced append are gone, synced bytes are there"


def prove_slow_disk(cluster: Cluster) -> str:
    """Prove that a sync of 256 KiB takes as long as 128 KiB a second imply."""
    # A shared disk is slow now and then by itself: the fastest of several syncs is its capability.
    before_s = min(_sync_s(cluster, 1, 256 << 10) for _ in range(SYNCS))
    cluster.slow_disk(1, 128 << 10, 0)
    slow_s = _sync_s(cluster, 1, 256 << 10)
    cluster.slow_disk(1, 0, 0)
    after_s = min(_sync_s(cluster, 1, 256 << 10) for _ in range(SYNCS))
    require(slow_s > 1.0 and slow_s > 3 * max(before_s, after_s),
            f"{before_s:.2f} s before, {slow_s:.2f} s, {after_s:.2f} s afterwards")
    return f"256 KiB synced in {before_s:.2f} s before, in {slow_s:.2f} s at 128 KiB/s"


def prove_hung_disk(cluster: Cluster) -> str:
    """Prove that a write does not return before the thaw."""
    returned = threading.Event()

    def write() -> None:
        _write(cluster.disk_directory(1) / "hung", b"?", sync=True)
        returned.set()

    cluster.freeze_disk(1)
    writer = threading.Thread(target=write)
    try:
        writer.start()
        hung = not returned.wait(SILENCE_S)
    finally:
        cluster.thaw_disk(1)
        writer.join(SOON_S)
    require(hung, "a write returns while the disk is frozen")
    require(returned.is_set(), "a write does not return after the thaw")
    (cluster.disk_directory(1) / "hung").unlink()
    return "a write returned at the thaw only"


def prove_full_disk(cluster: Cluster) -> str:
    """Prove that a write fails with ``ENOSPC`` on the full disk, and succeeds once it is freed."""
    path = cluster.disk_directory(1) / "more"
    cluster.fill_disk(1)
    try:
        problem = _errno(lambda: _write(path, bytes(1 << 20), sync=True))
        require(problem == errno.ENOSPC, f"a write on the full disk: {problem}")
    finally:
        cluster.free_disk(1)
        path.unlink(missing_ok=True)
    _write(path, bytes(1 << 20), sync=True)
    path.unlink()
    return "ENOSPC until it was freed"


def prove_failed_disk(cluster: Cluster) -> str:
    """Prove that writes fail with EIO, and that the node ends by itself as soon as it writes."""
    cluster.fail_disk(1)
    problem = _errno(lambda: _write(cluster.disk_directory(1) / "more", b"?", sync=True))
    require(problem == errno.EIO, f"a write on the failed disk: {problem}")
    _provoke(cluster, lambda: not cluster.is_running(1))
    ended = cluster.exits()[-1]
    cluster.mend_disk(1)
    cluster.start(1)
    require((ended.node, ended.status, ended.requested) == (1, DISK_FAILED, False), f"{ended}")
    return f"EIO, and the node ended by itself with status {ended.status}"


def prove_bit_rot(cluster: Cluster) -> str:
    """Flip a bit in a durable entry of node 1; prove that ``log inspect`` finds the damage, and
    none after the bit is flipped back. Tests of the atlas check its rules."""
    _provoke(cluster, lambda: bool(_places(cluster)))
    flip = _places(cluster)[0]
    segment = rot.inspect(flip.path)
    rot.flip_bit(flip.path, flip.offset, 3)
    damaged = [row for row in rot.inspect(flip.path) if row["problem"]]
    require(bool(damaged), f"{flip.text}: nothing is damaged among {len(segment)} entries")
    rot.flip_bit(flip.path, flip.offset, 3)
    require(not any(row["problem"] for row in rot.inspect(flip.path)),
            f"{flip.text}: flipped back and still damaged")
    return f"{flip.text}: {damaged[0]['problem'].partition(':')[0]}"


def _places(cluster: Cluster) -> list[rot.Flip]:
    return list(rot.entries(random.Random(1), cluster, 1))


# -- everything else ------------------------------------------------------------------------------


def prove_clock(cluster: Cluster) -> str:
    """Prove that the node's start time follows the shifted wall clock, and that it survives a jump
    of the monotonic clock."""
    cluster.set_clock(1, wall_ms=HOUR_MS, jump_ms=5_000)
    try:
        ahead_ms = _restarted_ms(cluster, 1) - time.time() * 1000
        require(ahead_ms > HOUR_MS / 2, f"node 1 started {ahead_ms:.0f} ms from now")
    finally:
        cluster.set_clock(1)
    require(_restarted_ms(cluster, 1) < time.time() * 1000, "the clock is not healed")
    return "a node said that it starts in an hour"


def _restarted_ms(cluster: Cluster, node: int) -> int:
    """Restart a node and return the start time, in milliseconds of its wall clock, that it
    registers. Raises ``NoBite`` when it registers none within ``SOON_S``."""
    found = [_started_ms(cluster, node)]
    before_ms = found[0]
    cluster.stop(node)
    cluster.start(node)

    def told() -> bool:
        found[0] = _started_ms(cluster, node)
        return found[0] != before_ms

    require(host.holds(_patient(told), SOON_S, 0.2), f"node {node} does not register")
    return found[0]


def _started_ms(cluster: Cluster, node: int) -> int:
    with blocking.Client(cluster.servers()) as client:
        client.catch_up()
        return next(row.node.started_ms for row in client.node_list().nodes if row.node.id == node)


def prove_membership(cluster: Cluster) -> str:
    """Prove that a node joins and is removed, and that it is refused when it is started once
    more."""
    node = cluster.add_node()
    require(node in _known(cluster), f"node {node} has joined and is not listed")
    cluster.remove_node(node)
    require(node not in _known(cluster) and not cluster.is_running(node), f"node {node} stays")
    require(node in cluster.try_removed(), f"node {node} was not started again")
    require(node not in _known(cluster), f"node {node} is a member again")
    return f"node {node} joined, was removed, and was refused when it came back"


def prove_leadership(cluster: Cluster) -> str:
    """Transfer the leadership of a group; prove that the chosen voter leads it."""
    with blocking.Client(cluster.servers()) as client:
        row = next(row for row in client.group_list() if row.group and row.leader)
        to = next(node for node in row.voters if node != row.leader)

        def led() -> bool:
            """Request the transfer again until it has happened: a transfer that takes too long is
            given up."""
            client.group_transfer(row.group, to)
            return any(each.leader == to for each in client.group_list()
                       if each.group == row.group)
        require(host.holds(_patient(led), SOON_S), f"group {row.group} is not led by node {to}")
    return f"group {row.group} went from node {row.leader} to node {to}"


def prove_placement(cluster: Cluster) -> str:
    """Switch a partition of a new topic; prove that it is in the chosen group."""
    topic = "placement-proof"
    with blocking.Client(cluster.servers()) as client:
        client.create_topic(topic)
        row = client.explain_placement(topic)[0]
        group = row.epoch_history[-1].group % cluster.spec.groups + 1
        client.switch_partition(row.incarnation, row.epoch_history[-1].epoch + 1, group)

        def there() -> bool:
            return client.explain_placement(topic)[0].epoch_history[-1].group == group
        require(host.holds(_patient(there), SOON_S), f"{topic}/0 is not in group {group}")
    return f"a partition went from group {row.epoch_history[-1].group} to group {group}"


PROOFS: dict[str, Callable[[Cluster], str]] = {
    KILL: prove_kill, STOP: prove_stop, PAUSE: prove_pause, PARTITION: prove_partition,
    LOSS: prove_loss, DELAY: prove_delay, RESET: prove_reset, POWER_LOSS: prove_power_loss,
    SLOW_DISK: prove_slow_disk, HUNG_DISK: prove_hung_disk, FULL_DISK: prove_full_disk,
    FAILED_DISK: prove_failed_disk, BIT_ROT: prove_bit_rot, MEMBERSHIP: prove_membership,
    LEADERSHIP: prove_leadership, PLACEMENT: prove_placement, CLOCK: prove_clock}


# -- parts ----------------------------------------------------------------------------------------


def _patient(condition: Callable[[], bool]) -> Callable[[], bool]:
    """Return a condition that counts as false while the cluster does not answer."""
    def holds() -> bool:
        try:
            return condition()
        except (MultiRaftError, OSError):
            return False
    return holds


def _peer(cluster: Cluster, node: int) -> tuple[str, int]:
    address, _, port = cluster.address(node).rpartition(":")
    return address, int(port)


def _answers(cluster: Cluster, node: int) -> bool:
    try:
        with blocking.Client([cluster.address(node)]) as client:
            client.node_status(cluster.address(node), int(SILENCE_S * 1000))
    except (MultiRaftError, OSError):
        return False
    return True


def _require_answer(cluster: Cluster, node: int) -> None:
    require(host.holds(lambda: _answers(cluster, node), SOON_S), f"node {node} does not answer")


def _known(cluster: Cluster) -> Collection[int]:
    with blocking.Client(cluster.servers()) as client:
        client.catch_up()
        return {row.node.id for row in client.node_list().nodes}


def _connect(cluster: Cluster, node: int) -> str:
    """Return the outcome of a client's connection to a node within ``SILENCE_S``: "open", "reset"
    (refused, too) or "silence"."""
    try:
        with socket.create_connection(_peer(cluster, node), SILENCE_S):
            return "open"
    except ConnectionError:
        return "reset"
    except TimeoutError:
        return "silence"


def _datagrams(cluster: Cluster, source: int, target: int) -> list[tuple[int, float]]:
    """Send ``DATAGRAMS`` datagrams from one node's network to another's; return (number, delay in
    milliseconds) of each that arrives, in order of arrival."""
    address = _peer(cluster, target)[0]
    listener = subprocess.Popen(
        cluster.inside(target, *host.module("chaos.backends.packet_probe", address,
                                            str(PROBE_PORT), str(DATAGRAMS), str(LATE_S))),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=host.environment())
    with listener:
        listener.stdout.readline()
        sent = json.loads(host.run(*cluster.inside(source, sys.executable, "-c", _SENDER, address,
                                                   str(PROBE_PORT), str(DATAGRAMS))))
        listener.stdin.close()  # all are sent
        arrived = json.loads(listener.stdout.readline())
    return [(number, (at_ns - sent[number]) / 1e6) for number, at_ns in arrived]


#: Sends numbered datagrams, a few per millisecond, and prints the send times.
_SENDER = """
import json, socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = []
for number in range(int(sys.argv[3])):
    sent.append(time.monotonic_ns())
    sock.sendto(b"%d" % number, (sys.argv[1], int(sys.argv[2])))
    time.sleep(0.0005)
print(json.dumps(sent))
"""


def _write(path: Path, data: bytes, sync: bool = False) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, data)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if sync:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _errno(work: Callable[[], None]) -> int | None:
    try:
        work()
    except OSError as error:
        return error.errno
    return None


def _sync_s(cluster: Cluster, node: int, size: int) -> float:
    """Write and sync ``size`` bytes in a process of the node's cgroup; return the seconds that this
    took."""
    path = cluster.disk_directory(node) / "written"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(size)],
                          stdin=subprocess.PIPE, text=True) as writer:
        throttle.join(writer.pid, cluster.pid(node))
        begin_s = time.monotonic()
        writer.communicate("go\n", timeout=SOON_S)
    path.unlink()
    return time.monotonic() - begin_s


def _provoke(cluster: Cluster, seen: Callable[[], bool]) -> None:
    """Make every node write until ``seen`` returns true, by appends of a client that knows all
    nodes but the first. Raises ``BackendError`` when it does not within ``SOON_S``."""
    topic = f"provoked-{time.monotonic_ns()}"
    end_s = time.monotonic() + SOON_S
    while not seen():
        if time.monotonic() > end_s:
            raise BackendError("writing provokes nothing")
        try:
            with blocking.Client(cluster.servers(*cluster.nodes()[1:])) as client:
                if topic not in [row.name for row in client.list_topics()]:
                    client.create_topic(topic, 4)
                with client.producer(delivery_timeout_ms=2_000) as producer:
                    for number in range(200):
                        producer.send(blocking.Record(topic, b"%d" % number))
                        producer.flush()
        except (MultiRaftError, OSError):
            continue
