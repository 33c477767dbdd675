"""Layering of imports: the table of docs/architecture.md as a test.

Contract.  ``LAYERS`` is that table; a test compares the two, so neither changes alone.  A file
belongs to the first layer whose pattern matches it.  Every import of our own and of third-party
packages must be allowed by the layer; standard modules are allowed unless the layer forbids them,
because a clock, a socket or a thread in a pure package is what makes it untestable.

An import under ``if TYPE_CHECKING`` is a name for the reader and no dependency: it may name a
standard module (``random.Random`` in a signature) but not reach into a forbidden package.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from typing import NamedTuple

import pytest

from tests.tidy import tree
from tests.tidy.imports import Import, imports, targets

#: Modules of ``multiraft/`` itself: types, errors, and the hot path as ``core`` chooses it.
BASE = ("multiraft", "multiraft.core", "multiraft.types", "multiraft.errors")
CODEC = (*BASE, "multiraft.codec.layout")
#: The packages of consensus, which know no files and no sockets.
CONSENSUS = ("multiraft.raft.**", "multiraft.liveness.**", "multiraft.codec.**", *BASE)
PURE = ("trio", "socket", "asyncio", "threading", "time", "random", "os", "logging")
COMPRESSION = ("lz4", "zstandard", "cramjam")


class Layer(NamedTuple):
    """One row of the table."""

    title: str  # the first cell of the row in docs/architecture.md
    patterns: tuple[str, ...]  # of files
    ours: tuple[str, ...]  # modules; "x.*" = modules directly in x, "x.**" = everything below x
    third_party: tuple[str, ...]
    never: tuple[str, ...]  # standard or foreign modules
    excused: dict[str, tuple[str, ...]]  # file -> what it alone may import, for the reason there


#: Modules of ``node`` that the simulator drives as it does ``multiraft`` (docs/decisions/0026): the
#: metadata state machine, and tasks whose awaited functions are passed in.
DRIVEN_OF_NODE = {
    "chaos/simulator/disk/disk_worker.py": (
        "node.errors",
        "node.loop.segment_files",
        "node.loop.write_gather",
    ),
    "chaos/simulator/node/boot.py": (
        "node.clients.read_index",
        "node.loop.applier",
        "node.loop.block_reads",
        "node.loop.ready_driver",
        "node.replicas.lifecycle",
    ),
    "chaos/simulator/node/loop/checkpoints.py": ("node.loop.checkpoint_writer",),
    "chaos/simulator/node/loop/removal.py": (
        "node.removal.record_trim",
        "node.removal.removal_steps",
        "node.removal.segment_cleaner",
        "node.removal.segment_remover",
        "node.replicas.log_compaction",
    ),
    "chaos/simulator/node/replicas/log_compaction.py": ("node.replicas.log_compaction",),
    "chaos/simulator/node/loop/observed_store.py": ("node.loop.write_gather",),
    "chaos/simulator/node/loop/orderly_stop.py": (
        "node.errors",
        "node.loop.checkpoint_writer",
        "node.replicas.drain_leadership",
        "node.replicas.orderly_stop",
    ),
    "chaos/simulator/node/loop/rounds.py": ("node.loop.ready_driver",),
    "chaos/simulator/node/peers/bulk_channel.py": ("node.peers.errors",),
    "chaos/simulator/node/replicas/repair.py": (
        "node.replicas.repair_messages",
        "node.replicas.repair_steps",
    ),
    "chaos/simulator/node/loop/core_events.py": ("node.replicas.lifecycle",),
    "chaos/simulator/node/replicas/leadership.py": (
        "node.replicas.drain_leadership",
        "node.replicas.shed_transfers",
    ),
    "chaos/simulator/node/replicas/replica_lifecycle.py": (
        "node.metadata.state_machine",
        "node.replicas.lifecycle",
    ),
    "chaos/simulator/node/peers/transport.py": ("node.peers.append_filler",),
    "chaos/simulator/node/replicas/snapshots.py": (
        "node.errors",
        "node.loop.checkpoint_writer",
        "node.replicas.snapshot_installer",
        "node.replicas.snapshot_messages",
        "node.replicas.snapshot_receiver",
        "node.replicas.snapshot_source",
        "node.replicas.snapshot_state",
        "node.replicas.group_snapshot",
    ),
    "chaos/simulator/node/replicas/group_snapshots.py": (
        "node.errors",
        "node.replicas.group_downloads",
        "node.replicas.group_snapshot",
        "node.replicas.group_snapshot_installer",
        "node.replicas.record_copies",
        "node.replicas.record_copies_messages",
        "node.replicas.snapshot_receiver",
    ),
    "chaos/simulator/node/retention.py": (
        "node.clients.log_starts",
        "node.loop.block_reads",
        "node.metadata.commands",
        "node.metadata.result",
        "node.metadata.settings_table",
        "node.metadata.topics",
        "node.replicas.log_start_propagation",
        "node.replicas.partition_deletion",
        "node.retention.clock_entries",
        "node.retention.retention_pass",
        "node.retention.retention_task",
    ),
    "chaos/simulator/oracle/metadata_oracle.py": (
        "node.metadata.state_machine",
        "node.metadata.commands",
        "node.metadata.result",
    ),
    "chaos/simulator/node/loop/applier.py": ("node.loop.applier",),
    "chaos/simulator/node/clients/client_connection.py": (
        "node.clients.session",
        "node.loop.steps",
    ),
    "chaos/simulator/node/clients/client_port.py": (
        "node.admin.record_deletion",
        "node.clients.error_codes",
        "node.clients.fetch",
        "node.clients.key_checks",
        "node.clients.list_offsets",
        "node.clients.metadata_wait",
        "node.clients.native_requests",
        "node.clients.pending_appends",
        "node.clients.produce",
        "node.clients.read_index",
        "node.clients.read_view",
        "node.clients.router",
        "node.clients.session",
        "node.clients.staged_batches",
        "node.limits",
        "node.loop.steps",
        "node.request_errors",
    ),
    "chaos/simulator/node/clients/judged_ports.py": (
        "node.clients.read_view",
        "node.metadata.state_machine",
    ),
    "chaos/simulator/node/metadata/membership.py": ("node.clients.read_index",),
    "chaos/simulator/node/metadata/metadata_view.py": (
        "node.metadata.commands",
        "node.metadata.placement_table",
        "node.metadata.state_machine",
    ),
    "chaos/simulator/node/replicas/partition_switch.py": (
        "node.metadata.placement_table",
        "node.metadata.commands",
        "node.replicas.partition_switch",
    ),
    "chaos/simulator/node/rebalance/plan_controller.py": (
        "node.metadata.commands",
        "node.metadata.result",
        "node.rebalance.controller",
        "node.rebalance.participant",
        "node.rebalance.throttle",
    ),
    "chaos/simulator/node/rebalance/preferred_leaders.py": ("node.rebalance.preferred_leaders",),
}


#: What every package of ``admin_cli`` may import: modules of ``admin_cli`` itself and the client.
CLI_BASE = ("admin_cli.*", "multiraft.client.**", "multiraft.settings.**", "multiraft.wire.**",
            *CODEC)

#: What no part of the node imports: time is read in one module.
NEVER_IN_NODE = ("pyspark", "time", "random")

LAYERS = (
    Layer(
        "`multiraft.compression`",
        ("multiraft/compression.py",),
        CODEC,
        COMPRESSION,
        PURE,
        {},
    ),
    Layer(
        "`multiraft/*.py`",
        ("multiraft/*.py",),
        BASE,
        (),
        PURE,
        {"multiraft/core.py": ("os", "multiraft._core", "multiraft.codec.reference")},
    ),
    Layer(
        "`multiraft.codec`",
        ("multiraft/codec/**.py",),
        ("multiraft.codec.**", *BASE),
        (),
        PURE,
        # The twin of system calls without the GIL: gathered append, the disk queue.
        {"multiraft/codec/reference/disk.py": ("os", "threading", "time")},
    ),
    Layer(
        "`multiraft.liveness`",
        ("multiraft/liveness/**.py",),
        ("multiraft.liveness.**", *BASE),
        ("sortedcontainers",),
        PURE,
        {},
    ),
    Layer("`multiraft.raft`", ("multiraft/raft/**.py",), CONSENSUS, (), PURE, {}),
    Layer(
        "`multiraft.partitions`",
        ("multiraft/partitions/**.py",),
        ("multiraft.partitions.**", "multiraft.raft.log_state", "multiraft.codec.**", *BASE),
        (),
        PURE,
        {},
    ),
    Layer(
        "`multiraft.settings`",
        ("multiraft/settings/**.py",),
        ("multiraft.settings.**", *CODEC),
        (),
        PURE,
        {},
    ),
    Layer(
        "`multiraft.wire`", ("multiraft/wire/*.py",), ("multiraft.wire.**", *CODEC), (), PURE, {}
    ),
    Layer(
        "`multiraft.kafka`",
        ("multiraft/kafka/**.py",),
        (
            "multiraft.kafka.**",
            "multiraft.errors",
            # A session serves both protocols: events, memory, limits and errors are the same.
            "multiraft.wire.connection",
            "multiraft.wire.errors",
            "multiraft.wire.foreign_protocols",
            "multiraft.wire.frames",
            "multiraft.wire.receive_buffer",
        ),
        (),
        PURE,
        {"multiraft/kafka/hot_messages.py": ("os",)},  # chooses the twin, as multiraft.core does
    ),
    Layer("`placement`", ("placement/**.py",), ("placement.**",), ("sortedcontainers",), PURE, {}),
    Layer(
        "`multiraft.storage.damage`",
        ("multiraft/storage/damage/**.py",),
        ("multiraft.storage.damage.**",),
        (),
        PURE,
        {},
    ),
    Layer(
        "`multiraft.storage.block_index`",
        ("multiraft/storage/block_index/**.py",),
        (
            "multiraft.storage.block_index.**",
            "multiraft.storage.config",
            "multiraft.storage.errors",
            "multiraft.storage.filesystem",
            "multiraft.storage.index",
            "multiraft.storage.journal.segment_index",
            "multiraft.raft.joint_quorum",
            "multiraft.raft.replica_records",
            "multiraft.codec.**",
            *BASE,
        ),
        ("cbor2",),
        PURE,
        {},
    ),
    Layer(
        "`multiraft.storage`",
        ("multiraft/storage/**.py",),
        ("multiraft.storage.**", "multiraft.partitions.**", "multiraft.compression", *CONSENSUS),
        ("sortedcontainers", "cbor2"),
        ("trio", "asyncio", "threading", "time", "random"),
        {},
    ),
    Layer(
        "`multiraft.client`",
        ("multiraft/client/**.py",),
        ("multiraft.client.**", "multiraft.wire.**", "multiraft.compression", *CODEC),
        ("trio",),
        (),
        {},
    ),
    Layer(
        "`node.metadata`",
        ("node/metadata/**.py",),
        (
            "node.metadata.**",
            "node.*",
            "multiraft.partitions.**",
            "multiraft.codec.**",
            "multiraft.settings.**",
            "multiraft.wire.**",
            "multiraft.storage.errors",
            "placement.**",
            *BASE,
        ),
        ("cbor2", "sortedcontainers"),
        ("pyspark", "time", "random", "trio", "socket", "threading"),
        {"node/metadata/log.py": ("trio",)},
    ),
    Layer(
        "`node.loop`",
        ("node/loop/**.py",),
        ("node.loop.**", "node.*", "multiraft.**"),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.peers`",
        ("node/peers/**.py",),
        ("node.peers.**", "node.loop.**", "node.metadata.**", "node.*", "multiraft.**"),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.clients`",
        ("node/clients/**.py",),
        (
            "node.clients.**",
            "node.cluster.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.**",
            "node.*",
            "multiraft.**",
            "placement.**",
        ),
        ("trio", "sortedcontainers"),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.earlier_epochs`",
        ("node/earlier_epochs/**.py",),
        (
            "node.earlier_epochs.**",
            "node.clients.**",
            "node.metadata.**",
            "node.peers.**",
            "node.*",
            "multiraft.**",
        ),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.kafka`",
        ("node/kafka/**.py",),
        (
            "node.kafka.**",
            "node.admin.**",
            "node.clients.**",
            "node.cluster.**",
            "node.earlier_epochs.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.**",
            "node.*",
            "multiraft.**",
        ),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.removal`",
        ("node/removal/**.py",),
        ("node.removal.**", "node.loop.**", "node.*", "multiraft.**"),
        (),
        ("pyspark", "time", "random", "trio", "socket", "threading"),
        {
            "node/removal/cleaner_task.py": ("trio",),
            "node/removal/removal_task.py": ("trio",),
        },
    ),
    Layer(
        "`node.retention`",
        ("node/retention/**.py",),
        (
            "node.retention.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.errors",
            "node.*",
            "multiraft.**",
        ),
        (),
        ("pyspark", "time", "random", "trio", "socket", "threading"),
        {"node/retention/retention_task.py": ("trio",)},
    ),
    Layer(
        "`node.compaction`",
        ("node/compaction/**.py",),
        (
            "node.compaction.**",
            "node.retention.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.**",
            "node.*",
            "multiraft.**",
        ),
        (),
        ("pyspark", "time", "random", "trio", "socket", "threading"),
        {"node/compaction/compaction_task.py": ("trio",)},
    ),
    Layer(
        "`node.replicas`",
        ("node/replicas/**.py",),
        (
            "node.replicas.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.**",
            "node.clients.**",
            "node.*",
            "multiraft.**",
        ),
        ("trio", "cbor2"),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.rebalance`",
        ("node/rebalance/**.py",),
        (
            "node.rebalance.**",
            "node.cluster.**",
            "node.loop.**",
            "node.metadata.**",
            "node.replicas.**",
            "node.*",
            "multiraft.**",
            "placement.**",
        ),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.admin`",
        ("node/admin/**.py",),
        (
            "node.admin.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.**",
            "node.clients.**",
            "node.removal.**",
            "node.replicas.**",
            "node.*",
            "multiraft.**",
            "placement.**",
        ),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.cluster`",
        ("node/cluster/**.py",),
        (
            "node.cluster.**",
            "node.metadata.**",
            "node.peers.**",
            "node.*",
            "multiraft.**",
        ),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.observability`",
        ("node/observability/**.py",),
        (
            "node.observability.**",
            "node.loop.**",
            "node.metadata.**",
            "node.peers.**",
            "node.clients.**",
            "node.removal.**",
            "node.replicas.**",
            "node.retention.**",
            "node.compaction.**",
            "node.rebalance.**",
            "node.*",
            "multiraft.**",
        ),
        ("trio", "h11", "prometheus_client"),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node.assembly`",
        ("node/assembly/**.py",),
        ("node.**", "multiraft.**", "placement.**"),
        ("trio",),
        NEVER_IN_NODE,
        {},
    ),
    Layer(
        "`node/*.py`",
        ("node/*.py",),
        ("node.**", "multiraft.**", "placement.**"),
        ("trio", "click", "rich"),
        NEVER_IN_NODE,
        {"node/clock.py": ("time", "random"), "node/main.py": ("time", "random")},
    ),
    Layer(
        "`admin_cli.values`",
        ("admin_cli/values/**.py",),
        (
            "admin_cli.values.**",
            *CLI_BASE,
        ),
        ("click",),
        (),
        {},
    ),
    Layer(
        "`admin_cli.development`",
        ("admin_cli/development/**.py",),
        (
            "admin_cli.development.**",
            "admin_cli.values.**",
            *CLI_BASE,
        ),
        (),
        (),
        {},
    ),
    Layer(
        "`admin_cli.console`",
        ("admin_cli/console/**.py",),
        (
            "admin_cli.console.**",
            "admin_cli.values.**",
            "admin_cli.development.**",
            *CLI_BASE,
        ),
        ("click", "rich"),
        (),
        {"admin_cli/console/options.py": ("placement.throttle",)},  # limits of a rate
    ),
    Layer(
        "`admin_cli.status`",
        ("admin_cli/status/**.py",),
        (
            "admin_cli.status.**",
            "admin_cli.values.**",
            "admin_cli.console.**",
            *CLI_BASE,
        ),
        (),
        (),
        {},
    ),
    Layer(
        "`admin_cli.records`",
        ("admin_cli/records/**.py",),
        (
            "admin_cli.records.**",
            "admin_cli.values.**",
            "admin_cli.console.**",
            *CLI_BASE,
        ),
        ("click",),
        (),
        {},
    ),
    Layer(
        "`admin_cli.plans`",
        ("admin_cli/plans/**.py",),
        (
            "admin_cli.plans.**",
            "admin_cli.values.**",
            "admin_cli.console.**",
            "admin_cli.status.**",
            "placement.**",
            "spark.**",
            *CLI_BASE,
        ),
        ("click", "rich"),
        (),
        {"admin_cli/plans/plan_picture.py": ("matplotlib",)},
    ),
    Layer(
        "`admin_cli`, `spark`",
        ("admin_cli/**.py", "spark/**.py", "pyspark_multiraft/**.py"),
        (
            "admin_cli.**",
            "spark.**",
            "pyspark_multiraft.**",
            "multiraft.client.**",
            "multiraft.wire.**",
            *CODEC,
            "placement.**",
        ),
        ("click", "rich", "pyspark", "pyarrow"),
        (),
        {
            "spark/loads.py": ("numpy",),
            "spark/session.py": ("py4j",),
        },
    ),
    Layer(
        "`chaos`",
        ("chaos/**.py",),
        ("chaos.**", "multiraft.**", "placement.**", "admin_cli.development.process_table",
         "admin_cli.extras"),
        ("sortedcontainers", "click", "rich", "trio"),
        (),
        {
            "chaos/backends/containers.py": ("docker", "testcontainers"),
            "chaos/workloads/kafka_client.py": ("confluent_kafka",),
            **DRIVEN_OF_NODE,
            "chaos/report/build.py": ("jinja2",),
            "chaos/report/charts.py": ("matplotlib", "numpy"),
            "chaos/report/lanes.py": ("numpy",),
            "chaos/report/series.py": ("numpy",),
        },
    ),
)

#: Only the simulator of ``chaos`` opens the box; everything else there sees a client's view.
CHAOS_OUTSIDE = ("chaos.**", "multiraft.client.**", "multiraft.wire.**", "multiraft.kafka.**",
                 *CODEC,
                 "admin_cli.development.process_table", "admin_cli.extras")

#: What to do instead, for the failure's text.
INSTEAD = {
    "time": "the driver passes the time in (now_ms)",
    "random": "the driver passes a random.Random in",
    "os": "files belong to multiraft.storage, the environment to node/main.py",
    "socket": "bytes come in and go out as values; sockets belong to node and client",
    "threading": "threads belong to node",
    "trio": "trio belongs to node and multiraft.client",
    "asyncio": "the project's event loop is trio, in node and multiraft.client",
    "logging": "return a ready.Event; node writes the log",
    "pyspark": "Spark code belongs to spark and pyspark_multiraft",
}

#: What ``.pyx``, ``.pxd`` and ``.pxi`` files may import or cimport.
CYTHON_ALLOWED = re.compile(r"^(cython|cpython|libc|posix|struct|typing|zlib|collections"
                            r"|multiraft\.(types|errors|codec\.layout|codec\.values|_core)"
                            r"|multiraft\.kafka(\.errors)?)(\.|$)")


def layer_of(name: str) -> Layer | None:
    """The layer of a file: ``multiraft/*.py`` means that folder alone, ``**`` everything below."""
    for layer in LAYERS:
        for pattern in layer.patterns:
            deep = "**" in pattern
            if fnmatch.fnmatch(name, pattern) and (deep or name.count("/") == pattern.count("/")):
                return layer
    return None


def matches(module: str, allowed: tuple[str, ...]) -> bool:
    """Return True if ``module`` is one of ``allowed`` (see ``Layer.ours``)."""
    for rule in allowed:
        if rule.endswith(".**"):
            if module == rule[:-3] or module.startswith(rule[:-2]):
                return True
        elif rule.endswith(".*"):
            below = module.removeprefix(rule[:-1])
            packages = ("wire", "storage", "client", "raft", "liveness", "partitions", "codec",
                        "settings", "kafka")
            if below != module and "." not in below and below not in packages:
                return True
        elif module == rule:
            return True
    return False


def judge(name: str, layer: Layer, found: Import) -> list[str]:
    """Return the complaints about one import."""
    complaints = []
    excused = layer.excused.get(name, ())
    for module in targets(found):
        top = module.split(".")[0]
        where = f"{name}:{found.line} imports {module}"
        if module in excused or top in excused:
            continue
        if top in tree.PACKAGES:
            ours = layer.ours
            if layer.title == "`chaos`" and not name.startswith("chaos/sim"):
                ours = CHAOS_OUTSIDE
            if not matches(module, ours):
                complaints.append(f"{where}; {layer.title} may import only {', '.join(ours)} "
                                  f"of ours (docs/architecture.md)")
        elif top in layer.never and not (found.typing_only and top == "random"):
            complaints.append(f"{where}; {INSTEAD.get(top, 'it is forbidden in this layer')} "
                              f"(docs/architecture.md)")
        elif top not in sys.stdlib_module_names and top not in layer.third_party:
            complaints.append(f"{where}; third-party packages of {layer.title}: "
                              f"{', '.join(layer.third_party) or 'none'} (docs/architecture.md)")
    return complaints


def test_every_import_is_allowed_by_its_layer():
    complaints = []
    for name in tree.python_files(*tree.PACKAGES):
        layer = layer_of(name)
        if layer is None:
            complaints.append(f"{name}: belongs to no layer; add a row to LAYERS and to "
                              f"docs/architecture.md")
            continue
        for found in imports(name):
            complaints += judge(name, layer, found)
    tree.complain("imports against docs/architecture.md:", complaints)


DRIVEN = {(name, module) for name, modules in DRIVEN_OF_NODE.items() for module in modules}


def test_nothing_imports_node():
    complaints = [f"{name}:{found.line} imports {module}; start a node as a process instead"
                  for name in tree.python_files()
                  if name.split("/")[0] not in ("node", "tests")
                  for found in imports(name) for module in targets(found)
                  if module.split(".")[0] == "node"
                  and (name, module) not in DRIVEN]
    tree.complain("node is wired together in node/assembly and imported by nobody:", complaints)


def test_private_modules_stay_in_their_package():
    complaints = []
    for name in tree.python_files(*tree.PACKAGES):
        home = tree.module_name(name).split(".")[0]
        for found in imports(name):
            for module in targets(found):
                private = [part for part in module.split(".") if re.match(r"_[a-z]", part)]
                if private and module.split(".")[0] in tree.PACKAGES \
                        and module.split(".")[0] != home and module != "multiraft.codec.layout":
                    complaints.append(f"{name}:{found.line} imports the private {module}; import "
                                      f"the public module that re-exports it")
    tree.complain("private modules:", complaints)


def test_the_hot_path_is_chosen_in_one_place():
    allowed = ("multiraft/core.py", "benchmarks/bench_core.py")
    complaints = [f"{name}:{found.line} imports {module}; import multiraft.core instead, which "
                  f"chooses the twin" for name in tree.python_files()
                  if name not in allowed and not name.startswith("tests/")
                  for found in imports(name) for module in targets(found)
                  if module in ("multiraft._core", "multiraft.codec.reference")]
    tree.complain("twins:", complaints)


#: Modules whose classes the compiled codec of Kafka's messages replaces.
HOT_MODULES = tuple(f"multiraft.kafka.{name}" for name in (
    "_codec", "messages.fetch", "messages.headers", "messages.list_offsets", "messages.metadata",
    "messages.produce"))


def test_the_codec_of_kafka_is_chosen_in_one_place():
    complaints = [f"{name}:{found.line} imports {module}; import multiraft.kafka.hot_messages "
                  f"instead, which chooses the twin" for name in tree.python_files()
                  if not name.startswith(("multiraft/kafka/", "tests/"))
                  and name != "benchmarks/bench_kafka_codec.py"
                  for found in imports(name) for module in targets(found)
                  if module in HOT_MODULES]
    tree.complain("twins of messages:", complaints)


def test_imports_stand_at_the_top():
    lazy = ("admin_cli", "spark", "pyspark_multiraft", "benchmarks", "demo", "tests", "setup.py")
    commands = ("node/commands.py", "node/log_commands.py",
                "chaos/commands.py",  # loaded by every start of the CLI
                "chaos/run/command.py", "chaos/report/command.py",  # help without the extra
                "chaos/workloads/kafka_client.py")  # the names of workloads without the extra
    complaints = [f"{name}:{found.line} imports {found.module} inside a function; move it to the "
                  f"top (only the command line and Spark workers import late, to start fast)"
                  for name in tree.python_files()
                  if name.split("/")[0] not in lazy and name not in commands
                  for found in imports(name) if found.in_function]
    tree.complain("late imports:", complaints)


def test_the_command_line_starts_without_trio():
    complaints = [f"{name}:{found.line} imports trio at module scope; import it inside the command"
                  for name in tree.python_files("admin_cli") for found in imports(name)
                  if found.module.split(".")[0] == "trio" and not found.in_function]
    complaints += [f"{name}:{found.line} imports trio; the blocking twin serves programs without it"
                   for name in tree.python_files("multiraft") if name.endswith("blocking.py")
                   for found in imports(name) if found.module.split(".")[0] == "trio"]
    tree.complain("trio where it is not welcome:", complaints)


@pytest.mark.parametrize("name", tree.with_suffix(".pyx", ".pxd", ".pxi"))
def test_cython_imports_little(name):
    complaints = []
    for number, line in enumerate(tree.text(name).splitlines(), 1):
        found = re.match(r"\s*(?:from\s+(\S+)\s+c?import|c?import\s+(\S+))", line)
        if found and not CYTHON_ALLOWED.match(found[1] or found[2]):
            complaints.append(f"{name}:{number} imports {found[1] or found[2]}; the compiled twin "
                              f"sees C, the standard library's codecs and multiraft.types")
    tree.complain("imports of the extension:", complaints)


def documented_rows() -> list[list[str]]:
    """Return the cells of the table in docs/architecture.md, without header and rule."""
    part = tree.text("docs/architecture.md").split("## Who may import whom")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in part.splitlines() if line.startswith("|")]
    return rows[2:]


def test_the_table_and_its_prose_agree():
    rows = documented_rows()
    titles = [re.sub(r" \(.*\)$", "", row[0]) for row in rows]
    assert titles == [layer.title for layer in LAYERS]
    for layer, row in zip(LAYERS, rows, strict=True):
        missing = [package for package in layer.third_party if package not in row[2]
                   and package not in COMPRESSION]
        assert not missing, (f"{layer.title}: LAYERS allows {missing}, the table in "
                             f"docs/architecture.md does not name them")
