"""Consistency of the limits, and the page that documents them."""

import os
from dataclasses import fields
from pathlib import Path

import pytest

from multiraft.errors import ConfigError
from multiraft.raft.config import RaftConfig
from multiraft.storage.config import StorageConfig
from node.limits import Limits
from tests.docs.field_comments import reasons, shown
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "limits.md"
TABLES = (
    ("limits", Limits, "node/limits.py", "What one node takes from its clients and peers."),
    ("raft", RaftConfig, "multiraft/raft/config.py", "Consensus."),
    ("storage", StorageConfig, "multiraft/storage/config.py",
     "Storage. Fixed: `[storage]` of node.toml has other keys, see [`node.md`](node.md)."),
)


@pytest.mark.parametrize(("change", "says"), [
    ({"connections_max": 0}, "connections_max=0 must be at least 1"),
    ({"frame_bytes_max": 16 << 20, "fetch_bytes_max": 8 << 20}, "do not fit into frame_bytes_max"),
    ({"frame_bytes_max": 1 << 20}, "must hold two batches"),
    ({"connections_per_address_max": 5000}, "connections_per_address_max=5000 exceeds"),
    ({"requests_in_flight_max": 1 << 17}, "exceeds node_requests_in_flight_max"),
    ({"connection_bytes_in_flight_max": 1 << 20}, "frame_bytes_max=16777216 exceeds"),
    ({"node_bytes_in_flight_max": 1 << 24}, "exceeds node_bytes_in_flight_max"),
    ({"connection_send_buffer_bytes_max": 1 << 20}, "exceeds connection_send_buffer_bytes_max"),
    ({"node_send_buffer_bytes_max": 1 << 25}, "exceeds node_send_buffer_bytes_max"),
    ({"partitions_max": 9}, "exceeds partitions_max=9"),
    ({"partitions_per_topic_max": 9_000, "metadata_rows_max": 8_000},
     "partitions_per_topic_max=9000 exceeds metadata_rows_max=8000"),
    ({"metadata_rows_max": 60_000}, "metadata_rows_max=60000 exceeds what there can be, 50000"),
    ({"turn_rows_max": 0}, "turn_rows_max=0 must be at least 1"),
    ({"retention_check_interval_ms": 99}, "retention_check_interval_ms=99 must be from 100"),
    ({"topics_max": 1 << 30}, "topics_max=1073741824 exceeds what there can be"),
])
def test_limits_that_contradict_each_other_are_refused_by_both_names(change, says):
    with pytest.raises(ConfigError, match=says):
        Limits(**change).validate()


def test_the_defaults_agree_with_each_other():
    Limits().validate().validate_with(RaftConfig().validate(), StorageConfig().validate())


def test_one_connection_alone_never_fills_the_queue_of_a_group():
    """A refused append is repeated behind later ones, which were accepted."""
    limits, headers = Limits(), 8 << 20
    assert (limits.connection_bytes_in_flight_max + limits.frame_bytes_max + headers
            <= RaftConfig().uncommitted_bytes_max)


@pytest.mark.parametrize(("limits", "raft", "says"), [
    ({}, {"peer_window_bytes": 8 << 20}, "limits.frame_bytes_max=16777216 exceeds raft.peer_win"),
    ({}, {"peer_window_bytes": 128 << 20, "uncommitted_bytes_max": 128 << 20},
     "raft.peer_window_bytes=134217728 exceeds storage.segment"),
    ({"peer_send_buffer_bytes_max": 1 << 20}, {}, "exceeds limits.peer_send_buffer_bytes_max"),
    ({"frame_bytes_max": 4 << 20},
     {"append_bytes_max": 1 << 20, "peer_window_bytes": 4 << 20, "uncommitted_bytes_max": 4 << 20},
     "storage.entry_bytes_max=[0-9]+ exceeds raft.uncommitted_bytes_max=4194304"),
])
def test_what_is_accepted_can_be_replicated_and_stored(limits, raft, says):
    with pytest.raises(ConfigError, match=says):
        Limits(**limits).validate_with(RaftConfig(**raft), StorageConfig())


# ---- the page ----------------------------------------------------------------------------------


def page() -> str:
    """Return docs/limits.md as generated from the source."""
    before = PAGE.read_text().split("<!-- tables")[0]
    parts = [before + "<!-- tables: made from the source by tests/node/test_limits.py -->\n"]
    for name, kind, path, text in TABLES:
        told = reasons(path, kind)
        parts.append(f"\n## [{name}]\n\n{text}\n\n| key | default | reason |\n|---|---|---|\n")
        for item in fields(kind):
            assert told[item.name], f"{path}: {item.name} has no reason"
            parts.append(f"| `{item.name}` | {shown(item.default)} | {told[item.name]} |\n")
    return "".join(parts)


def test_the_page_says_what_the_source_says():
    expected = page()
    if os.environ.get("MULTIRAFT_REWRITE"):
        Path(PAGE).write_text(expected)
    assert PAGE.read_text() == expected, "MULTIRAFT_REWRITE=1 writes docs/limits.md anew"
