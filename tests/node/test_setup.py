"""``node init``: the files that it creates, the inputs that it refuses, and the checks of a
start."""

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from multiraft.errors import MultiRaftError
from multiraft.liveness.peer_identity import DURABLE, BootId
from multiraft.storage import refusal_record
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.refusal_record import RefusalRecord
from multiraft.storage.store import LOCK_FILE
from multiraft.wire.errors import NodeRemoved
from multiraft.wire.nodes import JoinClusterReply, NodeRow
from multiraft.wire.settings import SettingChange
from node import bootstrap, data_directory, setup
from node.address import Address
from node.commands import node_group
from node.config import KafkaConfig, NodeConfig, parse
from node.errors import BadConfig, BadDirectory, NodeRefused
from node.metadata.setting_commands import NO_TOPIC_ID, AlterSettings
from node.metadata.state_machine import MetadataState
from node.peers import registry
from tests.node.harness import CLUSTER, one_node_table

FILESYSTEM = RealFilesystem()
LATER = BootId(9, DURABLE | 9)


@pytest.fixture
def config(tmp_path) -> NodeConfig:
    """Return the configuration of the only node of a new cluster."""
    return parse(one_node_table(), tmp_path)


@pytest.fixture
def joining(config) -> NodeConfig:
    """Return the configuration of a node that joins a cluster."""
    return replace(config, node=replace(config.node, id=0), cluster_id=b"", groups=0,
                   replication_factor=0, members=())


def edited(config: NodeConfig, facts: registry.Facts,
           state: MetadataState | None = None) -> list[str]:
    """Return the differences between the file and the cluster, whose metadata are not known unless
    ``state`` is given."""
    return bootstrap.edited(config, facts, state or MetadataState())


class Cluster:
    """Scripted replies of the cluster that a node joins."""

    def __init__(self, problem: Exception | None = None):
        self.problem = problem
        self.asked: list[NodeRow] = []

    def connect(self, _servers):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def join_cluster(self, row):
        self.asked.append(row)
        if self.problem is not None:
            raise self.problem
        return JoinClusterReply(7, bytes.fromhex(CLUSTER), 8, 3, (row._replace(id=7),), (2,), 19)


def init(config: NodeConfig, cluster: Cluster | None = None):
    """Run ``node init``, with --join if a cluster is given."""
    servers = ["a:1"] if cluster is not None else []
    return setup.initialise(FILESYSTEM, config, servers, cluster and cluster.connect)


def test_a_new_cluster_s_node_knows_the_others_and_asks_nobody(config):
    found, is_new = init(config)
    assert (found.node, found.cluster.hex(), found.boot_epoch, is_new) == (1, CLUSTER, 0, True)
    assert found.incarnation
    facts = setup.facts_of(FILESYSTEM, config)
    assert facts == bootstrap.initial_facts(config)
    assert bootstrap.plan_of(facts).pool_size == 2


def test_a_second_init_changes_nothing(config):
    first, _ = init(config)
    assert init(config) == (first, False)
    assert setup.identity_of(FILESYSTEM, config) == first


def test_a_node_that_joins_is_told_its_id_and_who_is_there(joining):
    cluster = Cluster()
    found, _ = init(joining, cluster)
    assert (found.node, cluster.asked[0].id, cluster.asked[0].incarnation) == (
        7, 0, found.incarnation)
    facts = setup.facts_of(FILESYSTEM, joining)
    assert (facts.groups, facts.replication_factor, facts.version) == (8, 3, 19)
    assert (facts.admitted, facts.removed) == (True, {2: 0})
    assert bootstrap.plan_of(facts) is None, "it creates no groups of its own"
    resolved = setup.resolved(joining, setup.identity_of(FILESYSTEM, joining))
    assert (resolved.node.id, resolved.cluster_id.hex()) == (7, CLUSTER)


def test_join_counts_only_while_there_is_no_identity(joining):
    init(joining, Cluster())
    cluster = Cluster()
    assert init(joining, cluster)[1] is False
    assert not cluster.asked


@pytest.mark.parametrize(("problem", "kind"), [
    (NodeRemoved("node 3 was removed"), NodeRefused), (MultiRaftError("nobody"), BadConfig),
    (OSError("no route"), BadConfig)])
def test_a_cluster_that_does_not_take_the_node_leaves_no_trace(joining, problem, kind):
    with pytest.raises(kind, match="a:1"):
        init(joining, Cluster(problem))
    assert not joining.data_dir.exists()


def test_a_cluster_other_than_the_configured_one_is_not_joined(joining):
    with pytest.raises(NodeRefused, match="configuration names cluster ffff"):
        init(replace(joining, cluster_id=b"\xff" * 16), Cluster())
    assert not joining.data_dir.exists()


def test_without_a_cluster_to_begin_or_to_join_there_is_nothing_to_do(joining):
    with pytest.raises(BadConfig, match="--join"):
        init(joining)


def test_a_directory_with_data_and_no_identity_is_half_a_copy(config):
    journal = config.data_dir / "lane-0"
    journal.mkdir(parents=True)
    (journal / "segment").touch()
    with pytest.raises(BadDirectory, match="half a copy"):
        init(config)


@pytest.mark.parametrize("change", [{"cluster_id": b"\xee" * 16},
                                    {"node": SimpleNamespace(id=9)}])
def test_a_directory_of_somebody_else_is_refused_by_name(config, change):
    init(config)
    with pytest.raises(BadDirectory, match="belongs to"):
        setup.identity_of(FILESYSTEM, replace(config, **change))


def test_a_damaged_identity_is_no_missing_one(config):
    init(config)
    path = config.data_dir / "node.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "node": 2}))
    with pytest.raises(BadDirectory, match="CRC"):
        setup.identity_of(FILESYSTEM, config)


def test_a_directory_of_the_first_release_knows_the_others_from_the_configuration(config, joining):
    init(config)
    (config.data_dir / registry.KNOWN_NODES_FILE).unlink()
    assert setup.facts_of(FILESYSTEM, config) == bootstrap.initial_facts(config)
    with pytest.raises(BadDirectory, match="missing"):
        setup.facts_of(FILESYSTEM, joining)


def test_what_the_file_says_otherwise_than_the_cluster_is_named(config):
    facts = bootstrap.initial_facts(config)
    assert edited(config, facts) == []
    other = replace(config.members[0], id=2, rack="elsewhere")
    grown = replace(config, groups=9, replication_factor=2, members=(*config.members, other))
    assert edited(grown, facts) == [
        "groups: 9 in the file, 2 in the cluster", "replication_factor: 2 in the file, 1 in the "
        "cluster", "node 2 is in the file, not in the cluster"]
    moved = facts._replace(nodes={**facts.nodes, 2: bootstrap.record_of(
        replace(other, rack="r2"))})
    [differs] = edited(replace(config, members=(*config.members, other)), moved)
    assert "rack 'elsewhere'" in differs and "rack 'r2'" in differs


def test_a_table_that_was_not_edited_is_named_by_no_start_however_the_cluster_changes(config):
    """Nodes join, move and go: the table says how the cluster began, and may stay."""
    second = replace(config.members[0], id=2, rack="r2")
    whole = replace(config, members=(*config.members, second))
    facts = bootstrap.initial_facts(whole)
    third = bootstrap.record_of(replace(second, id=3))
    for nodes, removed in (
            ({**facts.nodes, 3: third}, {}),
            ({**facts.nodes, 2: bootstrap.record_of(replace(second, rack="moved"))}, {}),
            ({1: facts.nodes[1], 3: third}, {2: 0})):
        changed = facts._replace(nodes=nodes, removed=removed)
        assert edited(whole, changed) == []
        joined = changed._replace(initial=())
        assert edited(replace(config, members=()), joined) == []


def test_a_table_that_was_edited_to_agree_with_the_cluster_is_not_named(config):
    facts = bootstrap.initial_facts(config)
    second = replace(config.members[0], id=2, rack="r2")
    grown = facts._replace(nodes={**facts.nodes, 2: bootstrap.record_of(second)})
    assert edited(replace(config, members=(*config.members, second)), grown) == []


def test_a_node_that_was_taken_out_of_the_table_is_named_while_the_cluster_has_it(config):
    second = replace(config.members[0], id=2, rack="r2")
    facts = bootstrap.initial_facts(replace(config, members=(*config.members, second)))
    assert edited(config, facts) == ["node 2 is in the cluster, not in the file"]
    assert edited(config, facts._replace(nodes={1: facts.nodes[1]},
                                                   removed={2: 0})) == []


WILDCARDS = ["0.0.0.0", "::", "0", "0x0", "::ffff:0.0.0.0", "0:0:0:0:0:0:0:0", "224.0.0.1",
             "ff02::1", "255.255.255.255", "*"]


@pytest.mark.parametrize("name", ["client_address", "peer_address"])
@pytest.mark.parametrize("host", WILDCARDS)
def test_an_address_that_nobody_else_can_connect_to_is_no_node_s(config, joining, name, host):
    changed = {name: Address(host, 9101)}
    for refused, cluster in ((config, None), (joining, Cluster())):
        refused = replace(refused, node=replace(refused.node, **changed))
        with pytest.raises(BadConfig, match=f"{name}.*there is no separate listen address"):
            init(refused, cluster)
        assert not refused.data_dir.exists()
    others = replace(config, members=(*config.members, replace(config.node, id=2, **changed)))
    with pytest.raises(BadConfig, match=f"{name} of node 2"):
        init(others)


@pytest.mark.parametrize("host", WILDCARDS)
def test_an_address_that_nobody_else_can_connect_to_is_not_told_to_kafka_s_clients(
        config, joining, host):
    wild = str(Address(host, 9401))
    for kafka, says in (
            (KafkaConfig(address=wild), "kafka.address without kafka.advertised_address cannot be "
             ".*Name the address or host name .* in kafka.advertised_address; the node listens at "
             "kafka.address"),
            (KafkaConfig("127.0.0.1:9401", wild), "kafka.advertised_address cannot be "
             ".*Name the address or host name of this machine by which they reach it")):
        for refused, cluster in ((config, None), (joining, Cluster())):
            refused = replace(refused, kafka=kafka)
            with pytest.raises(BadConfig, match=says):
                init(refused, cluster)
            assert not refused.data_dir.exists()
        with pytest.raises(BadConfig, match=says):
            setup.check_addresses(replace(config, kafka=kafka), bootstrap.initial_facts(config),
                                  logging.getLogger("node"))
    listens = replace(config, kafka=KafkaConfig(wild, "k.example.org:9092"))
    assert init(listens)[1], "it may be listened at"
    setup.check_addresses(listens, bootstrap.initial_facts(listens), logging.getLogger("node"))


@pytest.mark.parametrize(("kafka", "told"), [
    (KafkaConfig(), ""), (KafkaConfig("127.0.0.1:9401"), "127.0.0.1:9401"),
    (KafkaConfig("127.0.0.1:9401", "[fd00::1]:9092"), "[fd00::1]:9092")])
def test_a_node_that_joins_registers_the_address_for_kafka_s_clients(joining, kafka, told):
    cluster = Cluster()
    joining = replace(joining, kafka=kafka)
    init(joining, cluster)
    assert cluster.asked[0].kafka_address == told
    assert setup.facts_of(FILESYSTEM, joining).nodes[7].kafka_address == told


def test_a_new_cluster_begins_in_the_same_way_whichever_nodes_have_a_port_for_kafka(config):
    """Each node knows only its own table [kafka], and all compute the same bootstrap."""
    with_port = replace(config, kafka=KafkaConfig("127.0.0.1:9401"))
    assert bootstrap.initial_facts(with_port) == bootstrap.initial_facts(config)


@pytest.mark.parametrize("server", ["0.0.0.0:9101", "[::]:9101"])
def test_a_cluster_is_not_joined_at_an_address_that_means_this_machine(joining, server):
    cluster = Cluster()
    with pytest.raises(BadConfig, match="--join cannot be"):
        setup.initialise(FILESYSTEM, joining, [server], cluster.connect)
    assert not cluster.asked


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1", "10.0.0.1", "broker-1", "0a"])
def test_addresses_of_machines_and_names_are_taken(config, host):
    node = replace(config.node, client_address=Address(host, 9101))
    assert init(replace(config, node=node, members=(node,)))[1]


def test_an_address_that_was_always_unreachable_is_named_and_a_new_one_refused(config, caplog):
    """A cluster of an earlier release on one machine continues to work."""
    log = logging.getLogger("node")
    facts = bootstrap.initial_facts(config)
    setup.check_addresses(config, facts, log)
    assert not caplog.records
    old = replace(config, node=replace(config.node, peer_address=Address("0.0.0.0", 9201)))
    with pytest.raises(BadConfig, match="peer_address of node 1"):
        setup.check_addresses(old, facts, log)
    facts = facts._replace(nodes={1: bootstrap.record_of(old.node)})
    setup.check_addresses(old, facts, log)
    assert [record.host for record in caplog.records] == ["0.0.0.0"]


# ---- a directory that was refused ----------------------------------------------------------------


@pytest.fixture
def clear(config, monkeypatch):
    """Run ``node clear-refusal`` for the directory that ``config`` names."""
    monkeypatch.setattr(data_directory, "load", lambda path: config)
    return lambda *options: CliRunner().invoke(
        node_group, ["clear-refusal", "--config", "node.toml", *options])


def test_a_refused_directory_is_not_started_and_nothing_of_it_changes(config):
    init(config)
    refusal_record.write(FILESYSTEM, str(config.data_dir),
                         RefusalRecord("node 3: it is a copy", LATER, 5))
    before = {path: path.read_bytes() for path in config.data_dir.rglob("*") if path.is_file()}
    for _ in range(3):
        with pytest.raises(NodeRefused, match="it is a copy.*clear-refusal") as raised:
            setup.identity_of(FILESYSTEM, config)
        assert raised.value.exit_code == 3
    assert before == {path: path.read_bytes() for path in config.data_dir.rglob("*")
                      if path.is_file()}


def test_a_refusal_is_cleared_on_the_operator_s_word_only(config, clear):
    init(config)
    assert "nothing to clear" in clear().output
    refusal_record.write(FILESYSTEM, str(config.data_dir),
                         RefusalRecord("node 3: it is a copy", LATER, 5))
    refused = clear()
    assert refused.exit_code == 1 and "it is a copy" in refused.output
    assert "--accept-data-loss" in refused.output and "acknowledged" in refused.output
    assert setup.refusal_record_of(FILESYSTEM, config) is not None
    cleared = clear("--accept-data-loss")
    assert cleared.exit_code == 0, cleared.output
    found = setup.identity_of(FILESYSTEM, config)
    assert (found.boot_epoch, found.boot_ids) == (LATER.boot_epoch, (LATER,))


def test_the_refusal_of_a_directory_in_use_is_not_cleared(config, clear):
    init(config)
    refusal_record.write(FILESYSTEM, str(config.data_dir), RefusalRecord("why", LATER))
    lock = FILESYSTEM.lock(str(config.data_dir / LOCK_FILE))
    try:
        result = clear("--accept-data-loss")
    finally:
        lock.close()
    assert result.exit_code == 3 and "is held by process" in result.output
    assert setup.refusal_record_of(FILESYSTEM, config) is not None


@pytest.mark.parametrize("command", ["init", "start"])
@pytest.mark.parametrize("names", ["", " ", ","])
def test_a_list_that_names_nobody_founds_no_cluster(tmp_path, command, names):
    """An unset variable must not create a new cluster."""
    refused = CliRunner().invoke(node_group, [command, "--config", str(tmp_path / "node.toml"),
                                              "--join", names])
    assert (refused.exit_code, "'--join': it names no server" in refused.output) == (2, True)


# ---- [topic_defaults] ---------------------------------------------------------------------------

WEEK = ("retention.ms", "604800000")


@pytest.fixture
def with_defaults(config) -> NodeConfig:
    """Return the configuration of a new cluster that begins with a setting of topics."""
    return replace(config, topic_defaults=(WEEK,))


def altered(facts: registry.Facts, *changes: SettingChange) -> MetadataState:
    """Return the metadata of a cluster that began with these facts, after a change of settings."""
    state = bootstrap.bootstrapped(bootstrap.plan_of(facts))
    state.apply(2, AlterSettings("", NO_TOPIC_ID, changes))
    return state


def test_the_defaults_of_a_new_cluster_are_those_of_the_file_at_init(with_defaults):
    init(with_defaults)
    facts = setup.facts_of(FILESYSTEM, replace(with_defaults, topic_defaults=()))
    assert bootstrap.plan_of(facts).settings == (WEEK,)


def test_defaults_that_were_not_edited_are_named_by_no_start(with_defaults):
    facts = bootstrap.initial_facts(with_defaults)
    later = altered(facts, SettingChange("retention.ms", "1"))
    for state in (None, bootstrap.bootstrapped(bootstrap.plan_of(facts)), later):
        assert edited(with_defaults, facts, state) == []
        assert edited(replace(with_defaults, topic_defaults=()), facts, state) == []


def test_edited_defaults_are_named_with_the_command_that_changes_them(config, with_defaults):
    for facts in (bootstrap.initial_facts(config), bootstrap.initial_facts(config)._replace(
            initial=())):
        state = altered(bootstrap.initial_facts(config), SettingChange("retention.bytes", "7"))
        [differs] = edited(with_defaults, facts, state)
        assert differs == ("topic_defaults: retention.ms=604800000 in the file, retention.bytes=7 "
                           "in the cluster; `multiraft cluster settings` changes them")
    [differs] = edited(with_defaults, bootstrap.initial_facts(config))
    assert "none in the cluster" in differs


def test_defaults_that_agree_with_the_cluster_are_not_named(config, with_defaults):
    facts = bootstrap.initial_facts(config)
    assert edited(with_defaults, facts, altered(facts, SettingChange(*WEEK))) == []


def test_a_node_that_has_just_joined_names_no_defaults(with_defaults):
    facts = bootstrap.initial_facts(with_defaults)._replace(initial=(), topic_defaults=())
    assert edited(with_defaults, facts) == []
