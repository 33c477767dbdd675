"""Files in deploy/ fit the node that they deploy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from node import config
from node.errors import BadConfig, BadDirectory, DiskFailed
from node.limits import Limits
from tests import needs

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "multiraft.service"
CONTAINER = DEPLOY / "container"
COMPOSE = CONTAINER / "compose.yaml"
#: Nodes of the compose file.
NODES = (1, 2, 3)


def settings(name: str) -> list[str]:
    """Return values of a key of the unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_a_node_that_needs_a_person_is_not_started_again():
    codes = sorted(error.exit_code for error in (BadConfig, BadDirectory, DiskFailed))
    assert settings("RestartPreventExitStatus") == [" ".join(map(str, codes))]
    assert settings("Restart") == ["on-failure"]


def test_the_service_manager_waits_for_the_hand_over_and_for_as_many_files_as_limits_want():
    limits = Limits()
    assert int(settings("TimeoutStopSec")[0]) * 1000 >= 2 * limits.shutdown_timeout_ms
    assert int(settings("LimitNOFILE")[0]) >= 2 * limits.connections_max


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    needs.commands("systemd-analyze")
    copy = tmp_path / UNIT.name
    program = shutil.which("true")
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", UNIT.read_text(),
                           flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True,
                          timeout=300)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_image_is_built_from_what_is_beside_its_script():
    script = (DEPLOY / "container" / "build.sh").read_text(encoding="utf-8")
    dockerfile = (DEPLOY / "container" / "Dockerfile").read_text(encoding="utf-8")
    assert "ARG BASE=debian:bookworm-slim\n" in dockerfile
    assert "3.11) suite=bookworm" in script and "base=debian:$suite-slim" in script
    assert re.search(r"^USER multiraft$", dockerfile, flags=re.MULTILINE), "never root"


def test_the_base_has_the_python_that_builds_the_wheels(tmp_path):
    """A wheel for 3.13 cannot be installed on the Debian that has 3.11, which is noticed only after
    everything has been built."""
    for version, base in (("3.11", "debian:bookworm-slim"), ("3.13", "debian:trixie-slim"),
                          ("3.12", "python:3.12-slim")):
        assert bases(tmp_path, version) == [f"BASE={base}"]


def bases(tmp_path: Path, version: str) -> list[str]:
    """Return the bases with which build.sh calls docker, by a Python that only says its version."""
    folder = tmp_path / version
    folder.mkdir()
    for name, text in (
            ("python", f'case "$*" in *version_info*) echo {version} ;; '
                       '*"-m build"*) mkdir -p "$4"; touch "$4/a.whl" ;; esac'),
            ("docker", f'[ "$1" = build ] && printf "%s\\n" "$@" >> {folder}/words; exit 0')):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    subprocess.run(["bash", str(DEPLOY / "container" / "build.sh")], check=True, timeout=300,
                   capture_output=True, env={**os.environ, "PYTHON": str(folder / "python"),
                                             "PATH": f"{folder}:{os.environ['PATH']}"})
    return re.findall(r"BASE=.*", (folder / "words").read_text())


def test_the_build_script_explains_itself_and_starts_nothing():
    done = subprocess.run(["bash", str(DEPLOY / "container" / "build.sh"), "--help"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "--debootstrap" in done.stderr


def test_each_node_has_the_address_of_its_container_and_the_same_cluster():
    addresses = re.findall(r"ipv4_address: ([0-9.]+)", COMPOSE.read_text())
    made = [config.load(CONTAINER / "cluster" / f"node-{node}.toml") for node in NODES]
    assert [each.node.client_address.host for each in made] == addresses
    assert [each.node.id for each in made] == list(NODES)
    assert len({(each.cluster_id, each.groups, each.replication_factor, each.members)
                for each in made}) == 1
    for node in NODES:
        assert f'"./cluster/node-{node}.toml:/etc/multiraft/node.toml:ro"' in COMPOSE.read_text()


def test_the_image_asks_for_health_where_the_nodes_answer():
    asked = re.search(r"^ENV MULTIRAFT_HEALTH=\S+:(\d+)/healthz$",
                      (CONTAINER / "Dockerfile").read_text(), flags=re.MULTILINE)[1]
    for node in NODES:
        text = (CONTAINER / "cluster" / f"node-{node}.toml").read_text()
        assert f'[http]\naddress = "0.0.0.0:{asked}"\n' in text
