"""The replicas that a node repairs after a start."""

from __future__ import annotations

from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.storage.store import Store
from multiraft.types import Configuration
from node.config import parse
from node.data_directory import draw_process_number
from tests.node.harness import make_node, one_node_table
from tests.storage.world import Rounds, noop_entry, write

DAMAGED_GROUP, GROUPS, NEW_GROUP = 1, {0, 1, 2}, 3


def damage(path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(bytes(data))


def damaged_directory(config, *groups: int) -> None:
    """Return a directory with three entries in each group, the first of which cannot be read."""
    store = Store.open(str(config.data_dir), RealFilesystem(),
                       Identity(config.cluster_id, config.node.id, 1,
                                draw_process_number()))
    rounds = Rounds(store)
    for group in groups:
        store.create_group(group, 1, Configuration((1,) if group in GROUPS else ()))
        for index in (1, 2, 3):
            rounds.run(write(group, noop_entry(group, index, 1)))
    position = store.table.logs[groups[0]].index.position(1)
    store.close()
    segment, = (config.data_dir / "lane-0").glob("*.segment")
    damage(segment, position + 30)


def test_a_replica_of_which_nothing_stands_in_a_damaged_journal_is_repaired_too(tmp_path):
    """The lost entries may have been its own, so it starts as a recovering head. A node that did
    not repair it kept it quarantined permanently, if the group had no entry yet when the node
    stopped."""
    config = parse(one_node_table(), tmp_path)
    damaged_directory(config, DAMAGED_GROUP)
    node = make_node(config)
    try:
        assert {group for group in GROUPS if node.core.status.of(group).quarantined} == GROUPS
        assert node.storage.repairer.groups == GROUPS
    finally:
        node.close()


def test_a_damaged_replica_of_a_group_that_metadata_do_not_know_yet_waits(tmp_path):
    """The pool grew, and this node's data of that group does not name its members."""
    config = parse(one_node_table(), tmp_path)
    damaged_directory(config, DAMAGED_GROUP, NEW_GROUP)
    node = make_node(config)
    try:
        assert NEW_GROUP in node.storage.repairer.groups
        assert NEW_GROUP not in node.core.status.groups()
        assert node.storage.repairer.step(NEW_GROUP) is None
        assert NEW_GROUP in node.storage.repairer.groups
    finally:
        node.close()
