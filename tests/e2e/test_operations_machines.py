"""docs/operations.md is typed unchanged on machines: the blocks with a place.

It takes minutes, root and a docker daemon: ``make ops-machines`` runs it, ``make test`` reports
that it was skipped.  Set OPS_KEEP=1 to keep the machines of a failed run for inspection.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import machines, page
from tests.e2e.machines import Machine, Machines
from tests.e2e.world import wait_for

ASKED = os.environ.get("OPS_MACHINES") == "1"
DESK, DESK_HOST, TREE = "desk", 100, "/srv/tree"
#: Size of node 1's disk: its reserve, its first segments and a little more.
DISK_BYTES = 448 << 20


def blocks(heading: str, place: str = "", state: str = "") -> list[page.Block]:
    """Return the blocks of a chapter that are typed on machines, or on one of them."""
    return [block for block in page.blocks() if block.heading == heading and block.places
            and (not place or place in block.places) and block.state == state]


@pytest.fixture(scope="module")
def world() -> Iterator[Machines]:
    """Yield three machines, the desk and one that is to join."""
    if not ASKED:
        pytest.skip("minutes, root and docker: run `make ops-machines`")
    why_not = machines.why_not()
    assert not why_not, f"`make ops-machines` cannot make machines: {why_not}"
    subprocess.run(["bash", "-ec", blocks("Install a node")[0].script], cwd=page.ROOT, check=True)
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(Machines())
        disk = stack.enter_context(small_disk(page.ROOT / "build" / "machine-disk"))
        desk = made.start(DESK, DESK_HOST, "-v", f"{page.ROOT}/build/wheels:{TREE}/build/wheels:ro",
                          "-v", f"{page.ROOT}/deploy:{TREE}/deploy:ro", directory=TREE)
        made.start("1", 1, "-v", f"{disk}:/var/lib/multiraft")
        for number in (2, 3, 4):
            made.start(str(number), number)
        _let_in(desk, made)
        try:
            yield made
        except BaseException:
            print(made.logs())
            raise


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """Create a file system of its own, of the kind that machines have."""
    image, mount = path.with_suffix(".img"), path
    if os.path.ismount(mount):
        subprocess.run(["umount", str(mount)], check=True)
    with open(image, "wb") as file:
        file.truncate(DISK_BYTES)
    mount.mkdir(exist_ok=True)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)
        mount.rmdir()
        image.unlink()


def _let_in(desk: Machine, made: Machines) -> None:
    """Let the desk reach the other machines by ssh."""
    desk.run("mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    desk.put("~/.ssh/config", "Host *\n  StrictHostKeyChecking no\n  LogLevel ERROR\n")
    key = desk.run("cat ~/.ssh/id_ed25519.pub")
    for name, machine in made.all.items():
        if name != DESK:
            machine.run("mkdir -p -m 700 .ssh")
            machine.put(".ssh/authorized_keys", key)


def follow(world: Machines, heading: str, place: str = "", state: str = "",
           machine: str = "") -> str:
    """Type a chapter's blocks; return the output of the last one.  ``machine``: type them on this
    one, instead of those on the page."""
    said = ""
    for block in blocks(heading, place, state):
        for name in ([machine] if machine else block.places):
            said = world.all[name].run(block.script)
    return said


def well(world: Machines) -> None:
    """Check that the cluster is healthy."""
    desk = world.all[DESK]
    desk.run("multiraft cluster status --wait-healthy")


# ---- in the order of the page --------------------------------------------------------------------


def test_every_place_of_the_page_is_known():
    places = {place for block in page.blocks() for place in block.places}
    assert places == {"tree", "desk", "1", "2", "3", "4"}


def test_a_cluster_begins_on_three_machines(world):
    desk = world.all[DESK]
    for name, text in page.files().items():
        desk.put(name, text)
    follow(world, "TLS and authentication")
    follow(world, "node.toml")
    follow(world, "As a service")
    said = follow(world, "Begin a cluster")
    assert [line.split()[:2] for line in said.splitlines()[-3:]] == [
        ["1", "up"], ["2", "up"], ["3", "up"]]
    assert " -  " not in said, "all have registered"


def test_the_sandbox_of_the_unit_is_in_force(world):
    machine = world.all["2"]
    pid = machine.unit("MainPID")["MainPID"]
    status = dict(line.split(":\t", 1) for line in machine.run(f"cat /proc/{pid}/status")
                  .splitlines())
    assert int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert int(status["Uid"].split()[0]) != 0
    limits = machine.run(f"cat /proc/{pid}/limits")
    files = next(line for line in limits.splitlines() if "open files" in line).split()[3]
    assert int(files) == min(65_536, int(machine.run("ulimit -Hn"))), "LimitNOFILE counts"
    written = machine.try_(f"nsenter --target {pid} --mount touch /usr/here /etc/multiraft/here")
    assert written.stderr.count("Read-only file system") == 2
    assert "connection_limit_lowered" not in machine.run("journalctl -u multiraft -o cat")


def test_reload_takes_new_certificates_and_the_connections_live(world):
    desk, machine = world.all[DESK], world.all["3"]
    before = machine.unit("MainPID")
    desk.run("certify 3 && scp -q node-3.crt 10.0.0.3:client.crt && "
             "scp -q node-3.key 10.0.0.3:client.key")
    machine.run("install -m 0640 -g multiraft client.crt client.key /etc/multiraft\n"
                "systemctl reload multiraft")
    machine.wait(lambda: "security_reloaded" in machine.run("journalctl -u multiraft -o cat"),
                 "it has read the files")
    assert machine.unit("MainPID") == before
    desk.run("multiraft --help > /dev/null; multiraft cluster status --servers 10.0.0.3:9101")


def test_a_crash_is_started_again(world):
    machine = world.all["2"]
    before = machine.unit("MainPID")["MainPID"]
    machine.run(f"kill -9 {before}")
    machine.wait(lambda: machine.unit("NRestarts", "ActiveState")
                 == {"NRestarts": "1", "ActiveState": "active"}, "systemd started it again")
    assert machine.unit("MainPID")["MainPID"] != before
    well(world)


def test_a_directory_without_identity_is_left_to_a_person(world):
    machine = world.all["2"]
    machine.run("systemctl stop multiraft && mv /var/lib/multiraft/data /var/lib/multiraft/away")
    assert machine.try_("systemctl start multiraft").returncode != 0
    assert machine.unit("ExecMainStatus", "ActiveState", "NRestarts") == {
        "ExecMainStatus": "3", "ActiveState": "failed", "NRestarts": "0"}
    assert "has no identity" in machine.run("journalctl -u multiraft -o cat")
    machine.run("mv /var/lib/multiraft/away /var/lib/multiraft/data\n"
                "systemctl reset-failed multiraft; systemctl start multiraft")
    well(world)


def test_stop_hands_over(world):
    desk = world.all[DESK]
    desk.run("for group in 1 2 3; do multiraft group transfer $group --to 3; done")
    machine = world.all["3"]
    machine.run("systemctl stop multiraft")
    assert machine.unit("Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    stopped = [line for line in machine.run("journalctl -u multiraft -o cat").splitlines()
               if '"event": "node_stopped"' in line or '"event":"node_stopped"' in line]
    assert '"groups_leading": 0' in stopped[-1] or '"groups_leading":0' in stopped[-1], stopped
    machine.run("systemctl start multiraft")
    well(world)


def test_a_rolling_restart(world):
    before = [world.all[name].unit("MainPID") for name in "123"]
    follow(world, "Rolling restart")
    after = [world.all[name].unit("MainPID") for name in "123"]
    assert all(old != new for old, new in zip(before, after, strict=True))
    well(world)


def test_a_cluster_grows_by_a_machine(world):
    grow = blocks("Grow by a node")
    desk = world.all[DESK]
    desk.run(grow[0].script)
    follow(world, "As a service", machine="4")
    world.all["4"].run(grow[1].script)
    said = desk.run(grow[2].script)
    assert ["4", "up"] in [line.split()[:2] for line in said.splitlines()]
    members = json.loads(desk.run("multiraft group members 1 --json"))
    assert sorted(members["voters"]) == [2, 3, 4]
    well(world)


def test_a_full_disk(world):
    desk, machine = world.all[DESK], world.all["1"]
    machine.try_("dd if=/dev/zero of=/var/lib/multiraft/ballast bs=1M")
    machine.wait(lambda: '"disk_full"' in machine.run("journalctl -u multiraft -o cat"),
                 "the node noticed")
    said = follow(world, "Full disk", "1", "full")
    assert '"disk_full"' in said
    status = desk.try_("multiraft cluster status").stdout
    assert "node 1 has a full disk" in status.partition("\n\n")[0]
    follow(world, "Full disk", DESK, "full")
    machine.run("rm /var/lib/multiraft/ballast")
    machine.wait(lambda: '"disk_space_freed"' in machine.run("journalctl -u multiraft -o cat"),
                 "the node has its reserve again")
    well(world)
    assert desk.run("multiraft consume orders --until-end | sort -n | uniq | wc -l") == "2000\n"


# ---- as a container ------------------------------------------------------------------------------


#: Names on the page -> names here, where other containers may have the same.
OURS = ((r"/etc/multiraft-", "{etc}/"), (r"\bmultiraft-", "ops-node-"),
        (r"--debootstrap --tag multiraft\b", "--base {base} --tag ops-multiraft"),
        (r"(--subnet \S+|--network) multiraft\b", r"\1 ops-multiraft"),
        (r"(:ro|:9101) multiraft\b", r"\1 ops-multiraft"),
        (r"nofile=65536:65536", "nofile={files}:{files}"))
BASE = "ops-base:bookworm"


@pytest.fixture
def containers(tmp_path) -> Iterator[Path]:
    """Yield the directory of the nodes' configurations; the containers of the page's block are
    removed at the end."""
    if not ASKED:
        pytest.skip("minutes, root and docker: run `make ops-machines`")
    why_not = machines.why_not()
    assert not why_not, f"`make ops-machines` cannot make containers: {why_not}"
    if not machines.ARCHIVE.exists():
        machines.make_archive()
    machines.docker("import", str(machines.ARCHIVE), BASE)
    try:
        yield tmp_path
    finally:
        remove("container", "ls --all --format {{.Names}}", "ops-node-")
        remove("volume", "ls --format {{.Name}}", "ops-node-")
        remove("network", "ls --format {{.Name}}", "ops-multiraft")
        for image in ("ops-multiraft", BASE):
            if docker_names("images", "--quiet", image):
                machines.docker("image", "rm", image)


def docker_names(*arguments: str) -> list[str]:
    return machines.docker(*arguments).stdout.split()


def remove(kind: str, listing: str, prefix: str) -> None:
    """Remove objects of a kind whose names begin with a prefix."""
    how = {"container": ["rm", "--force"], "volume": ["rm"], "network": ["rm"]}[kind]
    for name in docker_names(kind, *listing.split()):
        if name.startswith(prefix):
            machines.docker(kind, *how, name)


def test_nodes_run_as_containers(containers):
    for number in (1, 2, 3):
        (containers / str(number)).mkdir(mode=0o755)
        (containers / str(number) / "node.toml").write_text(container_config(number))
    allowed = docker_names("run", "--rm", "--network", "none", BASE, "sh", "-c", "ulimit -Hn")[0]
    files = 65_536 if allowed == "unlimited" else min(65_536, int(allowed))
    [block] = blocks("As a container")
    script = block.script
    for theirs, ours in OURS:
        script = re.sub(theirs, ours.format(base=BASE, etc=containers, files=files), script)
    done = subprocess.run(["bash", "-o", "pipefail", "-ec", script], cwd=page.ROOT, text=True,
                          capture_output=True, timeout=machines.COMMAND_S * 2)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    assert "Healthy: 3 nodes" in done.stdout
    healthy = ["inspect", "--format", "{{.State.Health.Status}}", "ops-node-1"]
    wait_for(lambda: docker_names(*healthy) == ["healthy"], "the health check says so", 60)
    machines.docker("stop", "--time", "60", "ops-node-2")
    assert docker_names("inspect", "--format", "{{.State.ExitCode}}", "ops-node-2") == ["0"]


def container_config(number: int) -> str:
    """Return the page's file with the changes of the chapter."""
    text = page.files()["node-1.toml"]
    above, cluster = text.split("[cluster]", 1)
    above = re.sub(r'\[security\].*', "[security]\ninsecure = true\n\n", above, flags=re.DOTALL)
    above = above.replace('"10.0.0.1:9301"', '"0.0.0.0:9301"').replace("r1", f"r{number}")
    above = above.replace("id = 1", f"id = {number}").replace("10.0.0.1:", f"10.0.0.{number}:")
    return re.sub(r"\b10\.0\.0\.(\d)", r"10.94.0.1\1", f"{above}[cluster]{cluster}")
