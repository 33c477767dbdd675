"""Names that programs outside of the repository use: commands, clients, operations, verbs, modules.

Contract.  The lists here are the names, as text, so that no renaming reaches them.  A name that has
to go leaves an alias; a list may grow and never loses an entry.  Names on disk:
test_frozen_formats.py.
"""

from __future__ import annotations

import importlib
import inspect
import json

import cbor2
import click
import pytest
from click.testing import CliRunner

from admin_cli.development import dev_state
from admin_cli.main import cli
from admin_cli.session import Session
from multiraft.client import blocking
from multiraft.raft.messages import AppendReply
from multiraft.wire import messages
from multiraft.wire.connection import Connection, RequestEvent, ResponseEvent, Role
from multiraft.wire.errors import Code, ErrorDetail
from node import config
from tests.node.harness import Client, in_trio, serving
from tests.raft.interaction import Interaction

#: Words of a command -> options that programs pass.
COMMANDS = {
    "dev up": ("--dir", "--nodes", "--groups", "--base-port"),
    "dev down": ("--dir", "--wipe"),
    "dev start": ("--dir",),
    "dev stop": ("--dir",),
    "dev status": ("--dir", "--json"),
    "topic create": ("--partitions", "--replication-factor", "-c"),
    "topic alter": ("--set", "--delete", "-c", "--dry-run"),
    "topic describe": ("--settings", "--json"),
    "cluster settings": ("--set", "--delete", "--json"),
    "topic list": ("--json",),
    "produce": (),
    "consume": ("--from", "--until-end", "--json"),
    "cluster status": ("--watch", "--interval", "--check", "--wait-healthy", "--timeout"),
    "group members": ("--add-learner",),
    "group pool grow": (),
    "node describe": (),
    "node init": ("--config",),
    "node remove": ("--yes",),
    "placement switch": ("--to-group",),
    "rebalance plan": ("--window", "--engine", "--max-age"),
    "metrics export": ("--output", "--window"),
    "metrics pipeline": ("--output", "--once", "--keep"),
    "sink list": ("--json",),
}

#: Lines that a shell passes, with arguments in their places.
LINES = (
    "dev up --dir d --nodes 1 --groups 4 --base-port 21001",
    "dev up --dir d",
    "dev down --dir d --wipe",
    "dev start 2 --dir d",
    "dev stop 2 --dir d",
    "dev status --dir d --json",
    "topic create t",
    "topic create t --partitions 4",
    "topic create t --replication-factor 3",
    "topic create t -c retention.ms=7 -c retention.bytes=9",
    "topic alter t --set retention.ms=7 --delete retention.bytes",
    "topic alter t -c retention.ms=7",
    "topic describe t --settings --json",
    "cluster settings --set retention.ms=7",
    "cluster settings --json",
    "topic list --json",
    "produce t",
    "consume t",
    "consume t --json",
    "consume t --until-end",
    "consume t --from -1h",
    "consume t --from earliest --until-end",
    "cluster status",
    "cluster status --watch --interval 1",
    "cluster status --check",
    "cluster status --wait-healthy --timeout 60",
    "group members 1 --add-learner 2",
    "group pool grow 8",
    "node describe 1",
    "node remove 1",
    "node remove 1 --yes",
    "placement switch t 0 --to-group 1",
    "rebalance plan --window 1",
    "rebalance plan --engine spark --max-age 1",
    "metrics export --output m --window 1",
    "metrics pipeline --output p --once --keep 1",
    "sink list --json",
)

#: Module and name -> its attributes, with the parameters of those that are called with names.
NAMES = {
    "multiraft.client": {
        "Client": {"create_topic": ("name", "partitions"), "producer": (),
                   "consume": ("topic", "start"), "__aenter__": (), "__aexit__": ()},
        "Record": {"topic": (), "value": (), "key": (), "partition": (), "headers": ()},
        "RequestError": {},
    },
    "multiraft.client.blocking": {
        "Client": {"create_topic": ("name", "partitions"), "describe_topic": ("name",),
                   "topic_metadata": ("name",), "list_offsets": ("name",), "group_list": (),
                   "producer": (), "consume": ("topic", "partition", "start", "until_end"),
                   "close": (), "advance": (), "listen": (), "__enter__": (), "__exit__": ()},
        "Record": {"topic": (), "value": (), "key": (), "partition": (), "headers": ()},
        "RequestError": {},
    },
}
#: Parameters of ``Record``, in order.
RECORD = ("topic", "value", "key", "partition", "headers")
#: Settings that ``Client.producer`` takes, and what producers, deliveries and consumers have.
PRODUCER_SETTINGS = ("acks", "batch_bytes", "linger_ms", "delivery_timeout_ms")
PRODUCER = ("send", "send_nowait", "send_many", "flush", "close")
DELIVERY = ("wait", "outcome", "result")
BATCH = ("data", "count", "records", "__len__")

#: Operation -> fields of its request and of its reply.
OPERATIONS = {
    "produce": (("acks", "timeout_ms", "batches"), ("results", "log_append_times_ms", "keyless")),
    "fetch": (("partitions", "bytes_min", "bytes_max", "wait_max_ms", "replica"), ("results",)),
    "metadata": (("topics",), ("cluster", "nodes", "topics", "missing", "groups")),
    "create_topic": (("name", "partitions", "replication_factor", "nonce", "settings"), ("topic",)),
    "add_partitions": (("name", "partitions", "incarnation", "nonce", "dry_run"), ("topic",)),
    "delete_records": (("partitions", "timeout_ms"), ("results",)),
    "alter_settings": (("topic", "changes", "incarnation", "dry_run"), ()),
    "describe_settings": (("topic",), ("incarnation", "settings")),
    "node_status": ((), ("node", "status")),
    "cluster_status": ((), ("cluster", "node", "nodes", "groups", "replication_factor",
                            "metadata_leader", "topics", "partitions")),
}
HELLO = {"op", "version", "class", "cluster", "node", "boot_epoch", "client_id", "incarnation",
         "process", "nonce", "after"}
WELCOME = {"op", "version", "cluster", "node", "boot_epoch", "frame_bytes_max", "batch_bytes_max",
           "in_flight_max", "proof"}
REFUSED = {"op", "code", "text", "versions", "proof", "remembered"}
#: Keys of the map ``status`` that programs read.
NODE_STATUS = {"disk_full", "disk_free_bytes"}

#: Verbs of the golden scripts.
VERBS = (
    "announce", "campaign", "change", "cluster", "compact", "configuration", "connect",
    "contradict", "crash", "create", "cut", "deadline", "deliver", "digest", "disconnect", "disk",
    "drop", "duplicate", "elect", "fits", "fsync", "hints", "hold", "image", "inject", "install",
    "join", "lease", "lease-once", "leases", "log", "loud", "make-way", "members", "mend", "offer",
    "propose", "quarantine", "quiet", "read", "recreate", "reincarnate", "release", "remove",
    "remove-member", "resign", "restart", "room", "rounds", "run", "settle", "status", "tick",
    "transfer", "wire",
)

#: Modules that programs beside the repository import, and what they take from them.
MODULES = {
    "admin_cli.connection": ("open_client",),
    "admin_cli.dev_cluster": ("DevCluster",),
    "benchmarks.failover": ("Bench",),
    "benchmarks.processes": ("free_base_port",),
    "multiraft.client": ("Client", "Record"),
    "multiraft.client.blocking": ("Client", "Record", "RequestError"),
}
DEV_CLUSTER = {"create": ("nodes", "groups", "replication_factor", "base_port"), "up": (),
               "down": (), "kill": (), "addresses": (), "record": ()}
#: Messages that golden scripts outside of the repository name by ``type=``.
MESSAGES = ("AppendReply",)

#: A configuration of a node, as programs write it.
NODE_TOML = """
[node]
id = 1
data_dir = "{data}"
client_address = "127.0.0.1:21501"
peer_address = "127.0.0.1:21601"
[security]
insecure = true
[storage]
durability = "relaxed"
[cluster]
id = "00112233445566778899aabbccddeeff"
groups = 2
replication_factor = 1
[[cluster.nodes]]
id = 1
client_address = "127.0.0.1:21501"
peer_address = "127.0.0.1:21601"
"""


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that begins with these words, and the words behind it."""
    command, context, rest = cli, click.Context(cli), list(words)
    while isinstance(command, click.Group):
        assert rest, f"multiraft {' '.join(words)} is a group, not a command"
        name, *rest = rest
        command = command.get_command(context, name)
        assert command is not None, f"the command `multiraft {' '.join(words)}` is gone: no {name}"
    return command, rest


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_has_its_options(words):
    command, rest = command_of(words.split())
    assert not rest, f"multiraft {words} takes no words of its own any more"
    known = {option for parameter in command.params for option in parameter.opts}
    missing = sorted({*COMMANDS[words]} - known)
    assert not missing, f"multiraft {words} has lost {', '.join(missing)}; keep an alias"


@pytest.mark.parametrize("line", LINES)
def test_the_line_is_understood(line):
    command, rest = command_of(line.split())
    command.make_context(line, rest)


def test_shells_complete_by_the_name_of_the_command(monkeypatch, capsys):
    monkeypatch.setenv("_MULTIRAFT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "multiraft clu")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        cli.main([], prog_name="multiraft", complete_var="_MULTIRAFT_COMPLETE")
    assert "cluster" in capsys.readouterr().out


def test_the_servers_are_in_the_environment():
    session = Session({"MULTIRAFT_SERVERS": "127.0.0.1:21002"})
    assert "127.0.0.1:21002" in session.servers().addresses


@pytest.mark.parametrize(("module", "name"), [
    (module, name) for module, names in NAMES.items() for name in names])
def test_the_client_has_its_names(module, name):
    found = getattr(importlib.import_module(module), name, None)
    assert found is not None, f"{module}.{name} is gone; keep an alias"
    slots = {each for kind in found.__mro__ for each in getattr(kind, "__slots__", ())}
    fields = {*getattr(found, "__dataclass_fields__", ()), *slots}
    for attribute, parameters in NAMES[module][name].items():
        assert hasattr(found, attribute) or attribute in fields, \
            f"{module}.{name}.{attribute} is gone; keep an alias"
        if parameters:
            known = [*inspect.signature(getattr(found, attribute)).parameters][1:]
            missing = [each for each in parameters if each not in known]
            assert not missing, f"{module}.{name}.{attribute} has lost the parameters {missing}"


def test_records_are_made_by_position_and_by_name():
    found = tuple(inspect.signature(blocking.Record).parameters)
    assert {*RECORD} <= {*found} and found[:2] == RECORD[:2], found
    assert blocking.Record("t", b"x", partition=1).partition == 1


def test_client_of_both_kinds_take_addresses_as_a_list():
    for module in NAMES:
        client = importlib.import_module(module).Client
        assert [*inspect.signature(client).parameters][0] == "servers", module


@pytest.mark.parametrize("module", NAMES)
def test_producers_deliveries_and_batches_have_their_names(module):
    found = importlib.import_module(module)
    settings = inspect.signature(blocking.ProducerSettings).parameters
    assert {*PRODUCER_SETTINGS} <= {*settings}, "settings of Client.producer"
    for kind, names in ((found.Producer, PRODUCER), (found.BatchDelivery, DELIVERY),
                        (found.FetchedBatch, BATCH), (found.Consumer, ("close",))):
        missing = [each for each in names if not hasattr(kind, each)]
        assert not missing, f"{module}.{kind.__name__} has lost {missing}"
    assert {"base_offset"} <= {*found.BatchReceipt._fields}


@pytest.mark.parametrize("op", OPERATIONS)
def test_the_operation_has_its_fields(op):
    request, reply = OPERATIONS[op]
    assert op in messages.REQUESTS and op in messages.RESPONSES, f"the operation {op} is gone"
    assert messages.REQUESTS[op].names == request, f"fields of the request {op}"
    assert messages.RESPONSES[op].names == reply, f"fields of the reply to {op}"


def test_the_handshake_has_its_fields():
    hello = messages.Hello(cluster=bytes(16), nonce=bytes(32), after=messages.BootIdRow(1, 2))
    welcome = messages.Welcome(bytes(16), 1, proof=bytes(32))
    refused = messages.Refused(1, "no", proof=bytes(32), remembered=messages.BootIdRow(1, 2))
    assert {*messages.hello_header(hello)} == HELLO
    assert {*messages.welcome_header(welcome)} == WELCOME
    assert {*messages.refused_header(refused)} == REFUSED
    least = {"op": "hello", "version": 2, "class": "client"}
    assert messages.read_hello(least) == messages.Hello()


def header_of(buffers: list) -> dict:
    """The header of a frame: its length and the header's stand before it, 4 bytes each."""
    return cbor2.loads(bytes(buffers[0])[8:])


def connected() -> tuple[Connection, Connection]:
    """A client's and a server's end of one connection, handshake done."""
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    server.receive_data(b"".join(client.send(messages.Hello())))
    server.next_event()
    client.receive_data(b"".join(server.send(messages.Welcome(bytes(16), 1))))
    client.next_event()
    return client, server


def test_envelopes_of_requests_and_replies_have_their_keys():
    client, server = connected()
    asked = client.send(RequestEvent(7, messages.NodeStatus(), 3))
    assert header_of(asked) == {"id": 7, "op": "node_status", "metadata_index": 3}
    server.receive_data(b"".join(asked))
    server.next_event()
    detail = ErrorDetail("why")
    said = header_of(server.send(ResponseEvent(7, None, Code.UNSUPPORTED, detail, 4)))
    assert {*said} == {"id", "code", "error", "metadata_index"}
    assert (said["id"], said["error"][0]) == (7, "why")


def test_rows_that_programs_read_by_position_keep_their_order():
    partition = messages.RESPONSES["metadata"].read({
        "cluster": bytes(16), "nodes": [], "missing": [], "groups": [],
        "topics": [["t", bytes(16), 1, [[0, 11, 12, 13, 14, 15]]]]}).topics[0].partitions[0]
    assert (partition.partition, partition.incarnation, partition.group, partition.leader,
            partition.leader_epoch, partition.epoch) == (0, 11, 12, 13, 14, 15)
    batch = messages.REQUESTS["produce"].read(
        {"acks": "commit", "timeout_ms": 5, "batches": [[11, 3]]}, b"abc").batches[0]
    assert (batch.incarnation, batch.length) == (11, 3)
    result = messages.RESPONSES["produce"].read({"results": [[0, 9, None]]}).results[0]
    assert (result.code, result.base_offset) == (0, 9)


@in_trio
async def test_the_status_of_a_node_has_the_keys_that_programs_read(tmp_path):
    async with serving(tmp_path) as node:
        async with await Client.open(node) as client:
            status = (await client.ask(messages.NodeStatus())).reply.status
    assert NODE_STATUS <= {*status}


@pytest.mark.parametrize("verb", VERBS)
def test_the_verb_of_golden_scripts_is_registered(verb):
    assert callable(getattr(Interaction, f"do_{verb.replace('-', '_')}", None)), \
        f"golden scripts outside of the repository say {verb!r}; keep it, as an alias at least"


@pytest.mark.parametrize("module", MODULES)
def test_the_module_is_imported_under_its_name(module):
    found = importlib.import_module(module)
    missing = [name for name in MODULES[module] if not hasattr(found, name)]
    assert not missing, f"{module} has lost {missing}; keep an alias"


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message_that_golden_scripts_name_exists(name):
    found = getattr(importlib.import_module(AppendReply.__module__), name, None)
    assert found is not None, f"golden scripts say type={name}"
    assert found.__name__ == name, f"type={name} is compared with {found.__name__}"


def test_a_development_cluster_is_driven_by_its_names(tmp_path):
    found = importlib.import_module("admin_cli.dev_cluster").DevCluster
    connect = importlib.import_module("admin_cli.connection").open_client
    dev_state.save(tmp_path, dev_state.plan(1, 4, 1, 21001))
    made = found(tmp_path, connect, {})
    assert (made.directory, made.record.nodes[0].pid) == (tmp_path, None)
    assert hasattr(importlib.import_module("benchmarks.failover").Bench, "spread")
    for name, parameters in DEV_CLUSTER.items():
        assert hasattr(found, name), f"DevCluster.{name} is gone"
        known = inspect.signature(getattr(found, name)).parameters if parameters else {}
        assert {*parameters} <= {*known}, f"parameters of DevCluster.{name}"


def test_the_configuration_of_a_node_has_its_keys(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(NODE_TOML.format(data=tmp_path / "data"))
    assert config.load(file).node.id == 1


def test_the_status_of_a_development_cluster_has_its_keys(tmp_path):
    dev_state.save(tmp_path, dev_state.plan(1, 4, 1, 21001))
    done = CliRunner().invoke(cli, ["dev", "status", "--dir", str(tmp_path), "--json"])
    assert done.exit_code in (0, 1), done.output
    assert {"id", "pid"} <= {*json.loads(done.stdout)["nodes"][0]}
