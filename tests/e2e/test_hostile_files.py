"""Data directories with damaged or forged files: a start reports the damage, or serves the rest.

Contract.  Each file of a node is damaged in turn, in places that a checksum covers and in places
with a corrected checksum.  The process serves, or ends with exit code 3 and a sentence; never with
a traceback, never without a message, never with more memory than ``RSS_KB_MAX``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from multiraft.core import crc32c
from multiraft.wire.errors import Code
from multiraft.wire.messages import NodeStatus
from tests.e2e.raw import batch
from tests.e2e.world import UP_S, World, node_command, wait_for

EXIT_BAD_DIRECTORY = 3
RSS_KB_MAX = 400 << 10
TOPIC = "t"
#: Records that fill a first segment: only a full one has an index.
FILLING, VALUE_BYTES = 20, 900 << 10


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> World:
    """Return a stopped cluster of one node with records, a checkpoint, an index and a scrub's
    state."""
    world = World.created(tmp_path_factory.mktemp("files") / "dev", 1, 2, 1)
    world.dev.up(UP_S)
    try:
        world.create(TOPIC)
        assert world.leader_of(TOPIC) == 1
        with world.session(1) as session:
            incarnation = session.partition(TOPIC).incarnation
            for number in range(FILLING):
                value = b"record %d" % number + bytes(VALUE_BYTES)
                assert session.produce(incarnation, batch(value)).code == Code.OK
        data = world.dev.directory / "node-1" / "data"
        for pattern in ("lane-0/*.index", "scrub.json"):  # the other files are written at the stop
            wait_for(lambda pattern=pattern: list(data.glob(pattern)), f"{pattern} is there", UP_S)
    finally:
        world.dev.down()
    return world


def flipped(data: bytes) -> bytes:
    """Flip a bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]


def lying(data: bytes) -> bytes:
    """Write a checkpoint with a valid CRC and invalid values."""
    body = data[:24] + b"\x84\x9b\x00\x00\x00\x7f\xff\xff\xff\xff" + data[34:-4]
    return body + crc32c(body).to_bytes(4, "little")


def forged(data: bytes) -> bytes:
    """Write a JSON file with a valid CRC and values of other types."""
    fields = {name: [value] for name, value in json.loads(data).items()
              if name not in ("crc", "format_version")}
    signed = {"format_version": json.loads(data)["format_version"], **fields}
    signed["crc"] = crc32c(json.dumps(signed, sort_keys=True).encode())
    return json.dumps(signed).encode()


def forged_scrub(data: bytes) -> bytes:
    """Write a scrub state that is JSON, without a CRC, and has no number of bytes."""
    return json.dumps(dict.fromkeys(json.loads(data), 7)).replace("7", "1e999").encode()


DAMAGE = {"empty": lambda data: b"", "half": lambda data: data[:len(data) // 2],
          "flipped": flipped, "behind": lambda data: data + b"\xc2\x41\x9b" * 100}
FILES = [("checkpoint-*", {**DAMAGE, "lying": lying}), ("lane-0/*.segment", DAMAGE),
         ("node.json", {**DAMAGE, "forged": forged}),
         ("known_nodes.json", {**DAMAGE, "forged": forged}),
         ("lane-0/*.index", DAMAGE), ("scrub.json", {**DAMAGE, "infinite": forged_scrub})]


@pytest.mark.parametrize("pattern,how", [(pattern, how) for pattern, ways in FILES for how in ways])
def test_a_damaged_file_is_said_or_survived(stopped, tmp_path, pattern, how):
    data = stopped.dev.directory / "node-1" / "data"
    kept = tmp_path / "kept"
    shutil.copytree(data, kept)
    try:
        victim = sorted(data.glob(pattern))[-1]
        ways = dict(FILES)[pattern]
        victim.write_bytes(ways[how](victim.read_bytes()))
        status, said, rss_kb = run_for_a_while(stopped)
        assert status in (0, EXIT_BAD_DIRECTORY), said
        assert "Traceback" not in said
        assert said.strip(), "it ended without a word"
        assert rss_kb < RSS_KB_MAX
    finally:
        shutil.rmtree(data)
        shutil.move(kept, data)


def run_for_a_while(world: World) -> tuple[int, str, int]:
    """Start the node; stop it once it serves.  Returns exit code, output and peak memory."""
    log = Path(world.dev.directory) / "said"
    with open(log, "wb") as output:
        process = subprocess.Popen(node_command(world.config(1)), stdout=output, stderr=output)
    killer = threading.Timer(UP_S, process.kill)
    killer.start()
    try:
        wait_for(lambda: process.poll() is not None or '"node_started"' in log.read_text(),
                 "the node serves or ends", UP_S)
        rss_kb = peak_kb(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        return process.wait(UP_S), log.read_text(), rss_kb
    finally:
        killer.cancel()
        process.kill()
        process.wait()


def peak_kb(pid: int) -> int:
    """Return the peak memory of a process; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines()
                 if line.startswith("VmHWM")), 0)


STRAYS = ["lane-0/99999999999999999999.segment", "lane-0/00000000000000001000.segment",
          "lane-0/notes.txt", "checkpoint-zzz"]


def test_stray_files_are_named_and_left_alone(stopped):
    """The node still accepts records: a file with an absurd number was taken for the journal's
    end."""
    data = stopped.dev.directory / "node-1" / "data"
    for name in STRAYS:
        (data / name).write_bytes(bytes(100))
    (data / "lane-0" / "lost+found").mkdir()
    os.mkfifo(data / "lane-0" / "00000000000000002000.segment")
    try:
        stopped.dev.up(UP_S)
        with stopped.session(1) as session:
            incarnation = session.partition(TOPIC).incarnation
            assert session.produce(incarnation, batch(b"more")).code == Code.OK
            assert not session.reply(NodeStatus()).status["disk_full"]
        said = (stopped.dev.directory / "node-1" / "log").read_text()
        for name in (*STRAYS, "lane-0/lost+found", "lane-0/00000000000000002000.segment"):
            assert f"{data / name}" in said
    finally:
        stopped.dev.down()
        for name in STRAYS:
            assert (data / name).read_bytes() == bytes(100)
            (data / name).unlink()
        (data / "lane-0" / "lost+found").rmdir()
        (data / "lane-0" / "00000000000000002000.segment").unlink()
