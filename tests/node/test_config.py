"""node.toml: accepted configurations, and the texts of refusals."""

from dataclasses import fields

import pytest

from multiraft.raft.config import RaftConfig
from node.config import RENAMED, HttpConfig, MetricsConfig, load
from node.errors import BadConfig
from node.limits import Limits

GOOD = """
[node]
id = 1
rack = "r1"
weight = 1.0
data_dir = "data"
client_address = "127.0.0.1:9101"
peer_address = "127.0.0.1:9201"

[cluster]
id = "00112233445566778899aabbccddeeff"
groups = 64
replication_factor = 1

[[cluster.nodes]]
id = 1
rack = "r1"
weight = 1.0
client_address = "127.0.0.1:9101"
peer_address = "127.0.0.1:9201"
"""


def write(tmp_path, text):
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_a_good_file_is_read_whole(tmp_path):
    config = load(write(tmp_path, GOOD))
    assert config.node.id == 1
    assert config.data_dir == tmp_path / "data"
    assert config.cluster_id.hex() == "00112233445566778899aabbccddeeff"
    assert config.groups == 64
    assert [member.id for member in config.members] == [1]


@pytest.mark.parametrize(("old", "new", "says"), [
    ("id = 1\nrack", "id = 0\nrack", "id"),
    ("groups = 64", "groups = 0", "groups"),
    ("groups = 64", "groups = 32_769", "groups must be a whole number from 1 to 32768"),
    ("groups = 64", "groups = true", "groups"),
    ("groups = 64", "", "groups"),
    ("replication_factor = 1", "replication_factor = 2", "needs as many nodes"),
    ('"127.0.0.1:9101"', '"127.0.0.1"', "host:port"),
    ('"127.0.0.1:9101"', '"127.0.0.1:99999"', "host:port"),
    ('"127.0.0.1:9101"', f'"127.0.0.1:{"9" * 5000}"', "host:port"),
    ('"127.0.0.1:9101"', '"..:9101"', "host:port"),
    ('"127.0.0.1:9101"', '"[::1:9101"', "host:port"),
    ('"127.0.0.1:9101"', '"http://127.0.0.1:9101"', "host:port"),
    ('"127.0.0.1:9101"', '"two words:9101"', "host:port"),
    ('"00112233445566778899aabbccddeeff"', '"xyz"', "32 hex digits"),
    ("weight = 1.0", "weight = -1", "weight"),
    ("[cluster]", "[cluster]\ncolour = 1", "colour"),
    ("[node]", "[raft]\nlease_ms = 10\n[node]", "lease_ms"),
    ("[node]", "[limits]\nframe_bytes_max = 10\n[node]", "frame_bytes_max"),
    ("[node]", "[limits]\nfrme_bytes_max = 10\n[node]", "frme_bytes_max"),
    ("[node]", "[http]\naddress = 9301\n[node]", "http.address must be text"),
    ("[node]", "[http]\naddress = 'nowhere'\n[node]", "host:port"),
    ("[node]", "[http]\nconnections_max = 0\n[node]", "http.connections_max"),
    ("[node]", "[http]\nhead_bytes_max = true\n[node]", "http.head_bytes_max"),
    ("[node]", "http = 5\n[node]", "http must be a table"),
    ("[node]", "topic_defaults = 5\n[node]", "topic_defaults must be a table"),
    ("[node]", "[topic_defaults]\n'retention.mss' = 5\n[node]",
     "topic_defaults.retention.mss: there is no such setting; did you mean retention.ms"),
    ("[node]", "[topic_defaults]\n'retention.ms' = -5\n[node]",
     r"topic_defaults.retention.ms: .*-1 = unlimited"),
    ("[node]", "[topic_defaults]\n'retention.ms' = '1 week'\n[node]",
     r"topic_defaults.retention.ms: .*-1 = unlimited"),
    ("[node]", "[topic_defaults]\nretention.ms = 5\n[node]",
     'topic_defaults.retention is a table: quote the whole name .*"retention.ms" ='),
    ("[node]", "[topic_defaults]\n'retention.ms' = [5]\n[node]",
     "topic_defaults.retention.ms must be text, true or false, or a number"),
    ("[node]", f"[topic_defaults]\n'retention.ms' = 0x{'f' * 5000}\n[node]",
     "topic_defaults.retention.ms must be .* a number of at most"),
    ("[node]", f"[topic_defaults]\n'leader.replication.throttled.replicas' = '{'1:1,' * 300}'\n"
     "[node]", "has 1200 characters, the limit is 1024"),
    ("[node]", "[topic_defaults]\n'unclean.leader.election.enable' = true\n[node]",
     "topic_defaults.unclean.leader.election.enable: only false is accepted"),
    ("[node]", "[topic_defaults]\n'min.insync.replicas' = 2\n[node]", "only 1 is accepted"),
    ("[node]", "[topic_defaults]\n'segment.jitter.ms' = 9\n'segment.ms' = 8\n[node]",
     "topic_defaults.segment.jitter.ms: 9 contradicts segment.ms=8"),
    ("[node]", "kafka = 5\n[node]", "kafka must be a table"),
    ("[node]", "[kafka]\nport = 9092\n[node]", "kafka does not know 'port'; it knows .'address'"),
    ("[node]", "[kafka]\naddress = 9092\n[node]", "kafka.address must be text"),
    ("[node]", "[kafka]\naddress = '127.0.0.1'\n[node]", "kafka.address must be 'host:port'"),
    ("[node]", "[kafka]\naddress = '127.0.0.1:0'\n[node]", "kafka.address must be 'host:port'"),
    ("[node]", "[kafka]\naddress = '127.0.0.1:9401'\nadvertised_address = 'k'\n[node]",
     "kafka.advertised_address must be 'host:port'"),
    ("[node]", "[kafka]\nadvertised_address = 'k:9092'\n[node]",
     "kafka.advertised_address needs kafka.address: name the 'host:port' to listen at, or remove"),
    ("[node]", "[kafka]\nnum_partitions = 0\n[node]",
     "kafka.num_partitions=0 must be from 1 to 10000"),
    ("[node]", "[kafka]\nnum_partitions = 10_001\n[node]", "must be from 1 to 10000"),
    ("[node]", "[kafka]\nnum_partitions = '3'\n[node]", "must be a whole number"),
    ("[node]", "[kafka]\nauto_create_topics = 1\n[node]",
     "kafka.auto_create_topics must be true or false, not 1"),
    ("[node]", "[kafka]\naddress = '127.0.0.1:9101'\n[node]",
     "kafka.address and node.client_address are both 127.0.0.1:9101: name another port"),
    ("[node]", "[kafka]\naddress = '127.0.0.1:9201'\n[node]", "node.peer_address are both"),
    ("[node]", "[kafka]\naddress = '127.0.0.1:9301'\n[node]", "http.address are both"),
    ("[node]", "[kafka]\naddress = '0.0.0.0:9401'\nadvertised_address = 'k:9092'\n[node]",
     "for Kafka's clients, 0.0.0.0, can be reached by others: name security.client_certificate and"
     " client_key, .* or accept that knowingly with security.insecure = true"),
    ("[node]", "[node", "cannot read"),
    ("id = 1\nrack = \"r1\"\nweight = 1.0\ndata_dir", "rack = \"r1\"\nweight = 1.0\ndata_dir",
     "which of cluster.nodes"),
])
def test_a_bad_file_is_refused_with_the_key_and_what_was_expected(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises(BadConfig, match=says) as caught:
        load(write(tmp_path, GOOD.replace(old, new)))
    assert "node.toml" in str(caught.value)


def test_settings_of_topics_are_read_as_canonical_texts_by_name(tmp_path):
    table = ("[topic_defaults]\n'retention.ms' = 604_800_000\n"
             "'cleanup.policy' = 'delete, compact'\n'preallocate' = true\n"
             "'min.cleanable.dirty.ratio' = 0.25\n'min.insync.replicas' = 1\n")
    config = load(write(tmp_path, table + GOOD))
    assert config.topic_defaults == (
        ("cleanup.policy", "compact,delete"), ("min.cleanable.dirty.ratio", "0.25"),
        ("min.insync.replicas", "1"), ("preallocate", "true"), ("retention.ms", "604800000"))


def test_the_majority_of_a_cluster_that_a_node_joins_is_not_judged(tmp_path):
    table = "[topic_defaults]\n'min.insync.replicas' = 2\n" + GOOD[:GOOD.index("[cluster]")]
    assert load(write(tmp_path, table)).topic_defaults == (("min.insync.replicas", "2"),)


def test_a_node_that_joins_needs_no_cluster_and_no_id(tmp_path):
    node_table = GOOD[:GOOD.index("[cluster]")]
    config = load(write(tmp_path, node_table.replace("id = 1\n", "")))
    assert (config.node.id, config.cluster_id, config.members) == (0, b"", ())
    named = load(write(tmp_path, node_table + '[cluster]\nid = "' + "ab" * 16 + '"\n'))
    assert (named.node.id, named.cluster_id.hex(), named.groups) == (1, "ab" * 16, 0)


def test_http_is_for_this_machine_unless_an_address_is_named_or_it_is_turned_off(tmp_path):
    def loaded(table: str) -> tuple[str, bool]:
        config = load(write(tmp_path, table + GOOD))
        return str(config.http.listen_address()), config.http_is_optional

    assert loaded("") == loaded("[http]\nlag_entries_max = 7\n") == ("127.0.0.1:9301", True)
    assert loaded('[http]\naddress = "127.0.0.1:9301"\n') == ("127.0.0.1:9301", False)
    assert loaded('[http]\naddress = ""\n') == ("None", False)


def test_kafka_s_clients_have_no_port_unless_an_address_is_named(tmp_path):
    def told(table: str) -> tuple[str, str]:
        kafka = load(write(tmp_path, table + GOOD)).kafka
        return str(kafka.listen_address()), str(kafka.advertised())

    assert told("") == told('[kafka]\naddress = ""\n') == ("None", "None")
    assert told('[kafka]\naddress = "127.0.0.1:9401"\n') == ("127.0.0.1:9401", "127.0.0.1:9401")
    assert told('[kafka]\naddress = "[::1]:9401"\nadvertised_address = "k.example.org:9092"\n') == (
        "[::1]:9401", "k.example.org:9092")


def test_topics_are_created_for_kafka_s_clients_only_where_that_is_turned_on(tmp_path):
    kafka = load(write(tmp_path, GOOD)).kafka
    assert (kafka.auto_create_topics, kafka.num_partitions) == (False, 1)
    table = "[kafka]\nauto_create_topics = true\nnum_partitions = 12\n"
    kafka = load(write(tmp_path, table + GOOD)).kafka
    assert (kafka.auto_create_topics, kafka.num_partitions) == (True, 12)


@pytest.mark.parametrize("security", [
    "insecure = true", 'client_certificate = "c.pem"\nclient_key = "c.key"'])
def test_others_may_reach_kafka_s_port_if_it_is_protected_as_the_client_port_is(tmp_path, security):
    table = ('[kafka]\naddress = "0.0.0.0:9401"\nadvertised_address = "k.example.org:9092"\n'
             f"[security]\n{security}\n")
    assert str(load(write(tmp_path, table + GOOD)).kafka.listen_address()) == "0.0.0.0:9401"


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(BadConfig, match="nowhere.toml"):
        load(tmp_path / "nowhere.toml")


# ---- keys of earlier releases ------------------------------------------------------------------

KINDS = {"limits": Limits, "raft": RaftConfig, "http": HttpConfig, "metrics": MetricsConfig}


@pytest.mark.parametrize(("table", "old", "new"), [
    (table, old, new) for table, names in RENAMED.items() for old, new in names.items()])
def test_a_key_of_an_earlier_release_is_read_under_its_new_name(tmp_path, table, old, new):
    keys = {item.name: item.default for item in fields(KINDS[table])}
    assert old not in keys
    value = not keys[new] if isinstance(keys[new], bool) else max(1, keys[new])
    text = str(value).lower()
    config = load(write(tmp_path, f"{GOOD}\n[{table}]\n{old} = {text}\n"))
    assert getattr(getattr(config, table), new) == value
    assert config.renamed_keys == ((f"{table}.{old}", f"{table}.{new}"),)
    with pytest.raises(BadConfig, match=f"{table}.{old} is now {table}.{new}: remove the old key"):
        load(write(tmp_path, f"{GOOD}\n[{table}]\n{old} = {text}\n{new} = {text}\n"))


def test_a_file_with_present_keys_has_none_to_rename(tmp_path):
    assert load(write(tmp_path, f"{GOOD}\n[raft]\nelection_jitter_ms = 200\n")).renamed_keys == ()


@pytest.mark.parametrize("text", ("x = " + "9" * 5_000, "x = " + "[" * 5_000, "x = ", "\xff"))
def test_a_file_that_is_no_toml_is_a_bad_config(tmp_path, text):
    path = tmp_path / "node.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadConfig, match="cannot read"):
        load(path)
