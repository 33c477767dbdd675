"""Three nodes in containers: one command starts them, and they keep their records."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from chaos import engine
from chaos.backends import host, image, subnet
from tests import needs
from tests.e2e.world import wait_for
from tests.tidy import tree

TAKES_THE_MACHINE = True

COMPOSE = tree.ROOT / "deploy" / "container" / "compose.yaml"
ADDRESSES = re.findall(r"ipv4_address: ([0-9.]+)", COMPOSE.read_text())
SUBNET = ipaddress.ip_network(f"{ADDRESSES[0]}/24", strict=False)
PROJECT = "multiraft-test"
RUN_S = 600


class Compose:
    """The cluster of the compose file, as a project of its own."""

    def __init__(self, name: str):
        known = host.run("docker", "info", "--format", "{{json .ClientInfo.Plugins}}")
        plugin = any(each["Name"] == "compose" for each in json.loads(known) or ())
        self.program = ["docker", "compose"] if plugin else ["docker-compose"]
        self.environ = {**os.environ, "MULTIRAFT_IMAGE": name, "MULTIRAFT_SERVERS": ",".join(
            f"{address}:9101" for address in ADDRESSES)}

    def __call__(self, *words: str) -> str:
        """Run compose."""
        return self._run([*self.program, "--project-name", PROJECT, "--file", str(COMPOSE),
                          *words])

    def multiraft(self, *words: str, given: str = "") -> str:
        """Run a command of `multiraft` on this machine."""
        return self._run([sys.executable, "-m", "admin_cli", *words], given)

    def is_whole(self) -> bool:
        """True if the containers are healthy, and a command from outside finds every node ready."""
        states = host.run("docker", "ps", "--filter", f"label=com.docker.compose.project={PROJECT}",
                          "--format", "{{.Status}}").splitlines()
        if sum("(healthy)" in state for state in states) < len(ADDRESSES):
            return False
        said = subprocess.run([sys.executable, "-m", "admin_cli", "cluster", "status"],
                              env=self.environ, cwd=tree.ROOT, capture_output=True, text=True,
                              timeout=RUN_S)
        return said.stdout.startswith("Healthy: 3 nodes")

    def _run(self, command: list[str], given: str = "") -> str:
        done = subprocess.run(command, input=given, env=self.environ, cwd=tree.ROOT,
                              capture_output=True, text=True, timeout=RUN_S)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def compose():
    try:
        running = engine.require()
    except engine.EngineUnavailable as error:
        needs.no_engine(error)
    with contextlib.closing(running):
        try:
            made = Compose(image.ensure())
        except image.NoBase as error:
            needs.no_engine(error)
        if shutil.which(made.program[0]) is None:
            pytest.skip(f"{needs.SKIPPED}no docker compose. Run as root: apt-get install -y "
                        "docker-compose")
        made("down", "--volumes")
        if taken := [each for each in subnet.routes() if each.overlaps(SUBNET)]:
            pytest.skip(f"{needs.SKIPPED}the addresses of the compose file are in use here "
                        f"({taken[0]}). Stop what uses them, for instance by: docker compose "
                        "--project-name multiraft down")
        yield made
        made("down", "--volumes")


def test_three_nodes_start_with_one_command_and_keep_their_records(compose):
    compose("up", "--detach")
    wait_for(compose.is_whole, "three nodes are healthy")
    compose.multiraft("topic", "create", "greetings", "--partitions", "3")
    compose.multiraft("produce", "greetings", given="hello\nworld\n")
    ready = json.loads(compose.multiraft("cluster", "status", "--json"))["nodes"]
    assert len(ready) == 3
    compose("restart")
    wait_for(compose.is_whole, "the nodes are back")
    assert read(compose) == {"hello", "world"}
    compose("down")
    compose("up", "--detach")
    wait_for(compose.is_whole, "new containers have the volumes")
    assert read(compose) == {"hello", "world"}


def read(compose: Compose) -> set[str]:
    """Return the values of the topic."""
    return set(compose.multiraft("consume", "greetings", "--until-end").splitlines())
