"""A sync that fails once ends the node, whatever the next sync would return: exit code 4."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from multiraft.wire import RequestEvent
from multiraft.wire.errors import Code
from multiraft.wire.messages import BatchPart, Produce
from tests import needs
from tests.e2e.raw import PRODUCE_MS, batch
from tests.e2e.world import UP_S, WAIT_S, World, node_command, wait_for

#: ``fdatasync`` fails while a file FAIL_SYNC exists: the disk fails for a moment.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd) {
    const char *flag = getenv("FAIL_SYNC");
    if (flag && unlink(flag) == 0) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""


@pytest.fixture
def shim(tmp_path) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip(f"{needs.SKIPPED}no C compiler. Run as root: apt-get install -y gcc libc6-dev")
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


def test_one_failed_sync_ends_the_node(tmp_path, shim):
    world = World.created(tmp_path / "dev", 1, 2, 1)
    flag = tmp_path / "fail"
    environment = {**os.environ, "LD_PRELOAD": shim, "FAIL_SYNC": str(flag)}
    node = subprocess.Popen(node_command(world.config(1)), env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: serves(world), "the node serves", UP_S)
        world.create("t")
        assert world.leader_of("t") == 1
        with world.session(1) as session:
            incarnation = session.partition("t").incarnation
            assert session.produce(incarnation, batch(b"before")).code == Code.OK
            flag.touch()
            lost = bytes(batch(b"lost"))
            session.send_bytes(*session.machine.send(RequestEvent(9, Produce(
                "commit", PRODUCE_MS, (BatchPart(incarnation, len(lost)),))), (lost,)))
            assert session.closed_by_node()  # and nothing was acknowledged before
        output, errors = node.communicate(timeout=WAIT_S)
    finally:
        node.kill()
        node.wait()
    assert node.returncode == 4, output + errors
    assert "failed" in errors or "could not be" in errors  # whichever sync failed
    assert not flag.exists()  # the disk would have worked again



def serves(world: World) -> bool:
    with world.session(1):
        return True
