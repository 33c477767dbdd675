"""Files of a local development cluster.

    D/cluster.json      the record: what the cluster is, which process each node was last
    D/lock              taken for the moments in which the record changes
    D/node-N/node.toml  configuration of node N
    D/node-N/data       its data
    D/node-N/log        its standard output and error, appended
    D/demo/plan.json    the plan of `make demo`, and its picture, plan.svg

Contract.  `cluster.json` is replaced atomically and only under `locked`.  The *pointer*, one file
per user, names the directory of the cluster that was started last, so that commands find it.
Invariants.  A node record with a pid also has the start time and the boot that the pid belongs to:
pids are reused, (boot, pid, start time) is not.
Nothing in the directory names the directory: it can be moved and copied while no node runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from admin_cli.failures import CommandFailed, NotFound
from admin_cli.values.text import shell_word

FORMAT_VERSION = 1
DEFAULT_DIRECTORY = "dev-cluster"
#: Data directory of a node, beside its configuration.
DATA = "data"
#: File of a data directory that the cluster has refused, written by the node.
REFUSED_FILE = "refused.json"
#: Its reason contains this if the node was removed from the cluster; other reasons do not.
REMOVED_REASON = "was removed from the cluster"
#: Files that `make demo` writes to ``demo_directory``.
DEMO_FILES = PICTURE, PLAN = "plan.svg", "plan.json"
DEFAULT_BASE_PORT = 9100
#: Peer ports lie this far above client ports, so this also bounds the number of nodes; the ports of
#: metrics and health lie as far above those, and the ports of Kafka's clients above these.
PEER_PORT_DISTANCE = 100
HTTP_PORT_DISTANCE = 2 * PEER_PORT_DISTANCE
KAFKA_PORT_DISTANCE = 3 * PEER_PORT_DISTANCE
#: Ports that one cluster may use, from its base port on.
PORTS = 4 * PEER_PORT_DISTANCE
#: True once nodes listen for Kafka's clients: then new clusters have ports for them.  Switched
#: together with the constant of this name in ``chaos.backends.layout``.
KAFKA_IS_SERVED = True
NODES_MAX = PEER_PORT_DISTANCE - 1
#: Time to wait for another command, which holds the lock for milliseconds.
LOCK_TIMEOUT_S = 10.0
#: Interval at which the lock is tried.
LOCK_POLL_S = 0.02

_DATA_DIR_LINE = re.compile(r"^[ \t]*data_dir[ \t]*=.*$", re.MULTILINE)

# The last command given for a node.  Its *state* follows from this and from its process.
RUN, STOP, KILL = "run", "stop", "kill"


@dataclass(slots=True)
class NodeRecord:
    """One node: its addresses, and its last process."""

    id: int
    rack: str
    client_address: str
    peer_address: str
    http_address: str = ""  # of metrics and health; empty in clusters made before there were any
    kafka_address: str = ""  # for Kafka's clients; empty in clusters made before there were any
    weight: float = 1.0
    wanted: str = STOP
    pid: int | None = None
    start_time: int = 0  # clock ticks after boot, field 22 of /proc/PID/stat
    boot: str = ""  # /proc/sys/kernel/random/boot_id


#: Value of ``ClusterRecord.loads_ms`` of a cluster whose nodes publish no loads.
LOADS_OFF = -1


@dataclass(slots=True)
class ClusterRecord:
    """The content of `cluster.json`."""

    cluster_id: str
    groups: int
    replication_factor: int
    base_port: int
    nodes: list[NodeRecord] = field(default_factory=list)
    version: int = FORMAT_VERSION
    #: Interval at which nodes append their loads to __metrics; 0 = their default, or ``LOADS_OFF``.
    loads_ms: int = 0

    def node(self, node_id: int) -> NodeRecord:
        """Return the node with this id.  Raises ``NotFound`` naming the known ids."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise NotFound(f"there is no node {node_id} in this cluster.", f"Its nodes are {ids}.")


def plan(nodes: int, groups: int, replication_factor: int, base_port: int,
         loads_ms: int = 0) -> ClusterRecord:
    """Return a new cluster on loopback: one rack per node, consecutive ports."""
    record = ClusterRecord(uuid.uuid4().hex, groups, replication_factor, base_port,
                           loads_ms=loads_ms)
    for node_id in range(1, nodes + 1):
        record.nodes.append(_new_node(base_port, node_id))
    return record


def _new_node(base_port: int, node_id: int) -> NodeRecord:
    client_port = base_port + node_id
    return NodeRecord(
        node_id, f"r{node_id}", f"127.0.0.1:{client_port}",
        f"127.0.0.1:{client_port + PEER_PORT_DISTANCE}",
        f"127.0.0.1:{client_port + HTTP_PORT_DISTANCE}",
        f"127.0.0.1:{client_port + KAFKA_PORT_DISTANCE}" if KAFKA_IS_SERVED else "")


def next_node(record: ClusterRecord) -> NodeRecord:
    """Return a node that the cluster does not have yet.  Raises ``CommandFailed`` when it is full.
    """
    node_id = max(node.id for node in record.nodes) + 1
    if node_id > NODES_MAX:
        raise CommandFailed(f"node {node_id} has no port: a local cluster has at most {NODES_MAX} "
                            "nodes, removed ones included.", "Create another one with --dir.")
    return _new_node(record.base_port, node_id)


def node_directory(directory: Path, node_id: int) -> Path:
    """Return the directory of a node's configuration, data and log."""
    return directory / f"node-{node_id}"


def log_path(directory: Path, node_id: int) -> Path:
    """Return the file with the node's standard output and error."""
    return node_directory(directory, node_id) / "log"


def config_path(directory: Path, node_id: int) -> Path:
    """Return the node's configuration file."""
    return node_directory(directory, node_id) / "node.toml"


def demo_directory(directory: Path) -> Path:
    """Return the directory of what `make demo` writes about its cluster."""
    return directory / "demo"


def node_at(directory: Path) -> tuple[Path, int] | None:
    """Return the cluster's directory and the id of the node that ``directory`` is of; None if it
    belongs to no development cluster."""
    name = re.fullmatch(r"node-(\d+)", directory.name)
    return (directory.parent, int(name[1])) if name and exists(directory.parent) else None


def exists(directory: Path) -> bool:
    """Return True if a cluster was created in ``directory``."""
    return (directory / "cluster.json").is_file()


def load(directory: Path) -> ClusterRecord:
    """Return the record of the development cluster in ``directory``. Raises ``NotFound`` when there
    is none, ``CommandFailed`` when it is malformed or of another format, ``OSError``."""
    path = directory / "cluster.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["version"] != FORMAT_VERSION:
            raise CommandFailed(f"{path} has format {raw['version']}, this command reads "
                                f"{FORMAT_VERSION}.", "Use the release that made the cluster.")
        raw["nodes"] = [NodeRecord(**node) for node in raw["nodes"]]
        return ClusterRecord(**raw)
    except FileNotFoundError:
        raise _no_cluster(directory) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommandFailed(f"{path} is not a cluster record: {error!r}.",
                            "Remove the directory, or restore the file.") from error


def _no_cluster(directory: Path) -> NotFound:
    return NotFound(f"there is no development cluster in {directory}.",
                    f"Create one: multiraft dev up --dir {shell_word(directory)}")


def save(directory: Path, record: ClusterRecord) -> None:
    """Replace the record atomically.  A node without a port for Kafka's clients has the fields that
    it had before there were any."""
    fields = asdict(record)
    for node in fields["nodes"]:
        if not node["kafka_address"]:
            del node["kafka_address"]
    _replace(directory / "cluster.json", json.dumps(fields, indent=2) + "\n")


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold ``D/lock`` during the body, after waiting for it. Raises ``NotFound`` without a
    directory, ``CommandFailed`` when another command keeps the lock for ``LOCK_TIMEOUT_S``."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    if not directory.is_dir():
        raise _no_cluster(directory)
    with open(directory / "lock", "a", encoding="ascii") as lock:
        while not _try_lock(lock.fileno()):
            if time.monotonic() > deadline:
                raise CommandFailed(f"another command has been changing {directory} for "
                                    f"{LOCK_TIMEOUT_S:.0f} s.", "Wait for it, or end it.")
            time.sleep(LOCK_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_configs(directory: Path, record: ClusterRecord) -> None:
    """Write every node's `node.toml`."""
    for node in record.nodes:
        node_directory(directory, node.id).mkdir(parents=True, exist_ok=True)
        _replace(config_path(directory, node.id), _node_toml(record, node))


def write_joining_config(directory: Path, record: ClusterRecord, node: NodeRecord) -> None:
    """Write the `node.toml` of a node that joins."""
    node_directory(directory, node.id).mkdir(parents=True, exist_ok=True)
    lines = [*_node_table("Written by `multiraft dev add-node`.", node),
             *_metrics_toml(record)]
    _replace(config_path(directory, node.id), "\n".join(lines) + "\n")


def was_removed(directory: Path, node_id: int) -> bool:
    """Return True if the node's data directory records that the node was removed from the cluster:
    it can never run again. A node that did not run meanwhile records that at its next start."""
    try:
        data = tomllib.loads(config_path(directory, node_id).read_text(encoding="utf-8"))
        place = node_directory(directory, node_id) / data["node"]["data_dir"] / REFUSED_FILE
        return REMOVED_REASON in json.loads(place.read_text(encoding="utf-8"))["reason"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # no refusal, or the node itself reports what is wrong with its files


def remaining(directory: Path, record: ClusterRecord) -> list[NodeRecord]:
    """Return the nodes without those that are known to be removed from the cluster."""
    return [node for node in record.nodes if not was_removed(directory, node.id)]


def use_own_data(directory: Path, node_id: int) -> None:
    """Make the node's configuration name the data directory beside it.

    Earlier releases wrote the absolute path, so that a copy of the directory ran on the data of the
    original.  A path that this command did not write stays as it is.
    """
    path = config_path(directory, node_id)
    text = path.read_text(encoding="utf-8")
    try:
        written = Path(tomllib.loads(text)["node"]["data_dir"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        return  # the node reports the error in its configuration
    was_generated = written.is_absolute() and written.parts[-2:] == (f"node-{node_id}", DATA)
    if was_generated and (path.parent / DATA).is_dir():
        _replace(path, _DATA_DIR_LINE.sub(f'data_dir = "{DATA}"', text, count=1))


def _node_table(comment: str, node: NodeRecord) -> list[str]:
    return [f"# {comment}", "[node]",
            f"id = {node.id}", f"rack = {_toml_string(node.rack)}", f"weight = {node.weight}",
            f"data_dir = {_toml_string(DATA)}",
            f"client_address = {_toml_string(node.client_address)}",
            f"peer_address = {_toml_string(node.peer_address)}", "", *_http_toml(node),
            *_kafka_toml(node)]


def _node_toml(record: ClusterRecord, node: NodeRecord) -> str:
    lines = [*_node_table("Written by `multiraft dev up`.", node),
             *_metrics_toml(record),
             "[cluster]", f"id = {_toml_string(record.cluster_id)}",
             f"groups = {record.groups}", f"replication_factor = {record.replication_factor}"]
    for member in record.nodes:
        lines += ["", "[[cluster.nodes]]", f"id = {member.id}",
                  f"rack = {_toml_string(member.rack)}", f"weight = {member.weight}",
                  f"client_address = {_toml_string(member.client_address)}",
                  f"peer_address = {_toml_string(member.peer_address)}"]
    return "\n".join(lines) + "\n"


def _http_toml(node: NodeRecord) -> list[str]:
    if not node.http_address:
        return []
    return ["[http]", f"address = {_toml_string(node.http_address)}", ""]


def _kafka_toml(node: NodeRecord) -> list[str]:
    if not node.kafka_address:
        return []
    return ["[kafka]", f"address = {_toml_string(node.kafka_address)}", ""]


def _metrics_toml(record: ClusterRecord) -> list[str]:
    if not record.loads_ms:
        return []
    if record.loads_ms == LOADS_OFF:
        return ["[metrics]", "publish = false", ""]
    return ["[metrics]", "publish = true", f"interval_ms = {record.loads_ms}", ""]


def _toml_string(text: str) -> str:
    # A JSON string is a TOML basic string but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically. Raises ``OSError`` with the name of the file, which is then as it
    was."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # on a disk that takes no writes there is none
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def remove_nodes(directory: Path, record: ClusterRecord) -> None:
    """Remove the directories of the nodes."""
    for node in record.nodes:
        if node_directory(directory, node.id).exists():
            shutil.rmtree(node_directory(directory, node.id))


def wipe(directory: Path, record: ClusterRecord) -> None:
    """Remove the files of this module, of the nodes and of the demo, and the directory if nothing
    else is in it."""
    remove_nodes(directory, record)
    of_demo = demo_directory(directory)
    for path in (*(of_demo / name for name in DEMO_FILES), directory / "cluster.json",
                 directory / "lock"):
        path.unlink(missing_ok=True)
    for emptied in (of_demo, directory):
        with contextlib.suppress(OSError):  # not empty: it holds other files
            emptied.rmdir()


# -- the pointer --------------------------------------------------------------------------------

def pointer_path(environ: Mapping[str, str]) -> Path | None:
    """Return the per-user file that names the cluster started last; None without a home directory.
    """
    base = environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):  # the XDG specification: relative paths are to be ignored
        return Path(base) / "multiraft" / "dev-cluster"
    if environ.get("HOME"):
        return Path(environ["HOME"]) / ".local" / "state" / "multiraft" / "dev-cluster"
    return None


def write_pointer(directory: Path, environ: Mapping[str, str]) -> str | None:
    """Record ``directory`` as the cluster started last. Return the reason if that failed, None
    otherwise."""
    path = pointer_path(environ)
    if path is None:
        return "HOME and XDG_STATE_HOME are not set"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, f"{directory}\n")
    except OSError as error:
        return str(error)
    return None


def drop_pointer(directory: Path, environ: Mapping[str, str]) -> None:
    """Remove the pointer if it names ``directory``."""
    path = pointer_path(environ)
    if path is not None and _pointed(environ) == directory:
        path.unlink(missing_ok=True)


def read_pointer(environ: Mapping[str, str]) -> Path | None:
    """Return the directory of the cluster that was started last; None if there is none."""
    pointed = _pointed(environ)
    return pointed if pointed is not None and exists(pointed) else None


def _pointed(environ: Mapping[str, str]) -> Path | None:
    path = pointer_path(environ)
    try:
        text = path.read_text(encoding="utf-8").strip() if path else ""
    except OSError:
        return None
    return Path(text) if text else None
