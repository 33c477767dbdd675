"""A node that comes back to metadata that were recovered by force without it (decision 0007)."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from multiraft.raft.messages import Append
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, Entry, EntryKind
from multiraft.wire.messages import ListTopics
from node import recover
from node.bootstrap import initial_facts, plan_of
from node.config import NodeConfig, parse
from node.data_directory import draw_process_number
from node.main import Node
from node.metadata.state_machine import AllocateProducerIds, CreateTopic, encode_command
from node.observability.phase import SERVING
from node.peers import registry
from tests.node.harness import CLUSTER, Client, in_trio, make_node, until
from tests.ports import free_port

OLD_LEADER, SURVIVOR = 2, 3
#: Incarnations and producer ids that may have been given away by what is lost.
LOST_MAX = 10_000
#: Index up to which clients may have seen metadata.
SEEN_MAX = 4_000


def first_of_three(directory: Path) -> NodeConfig:
    """The configuration of node 1, whose directory the others know; they are not there."""
    rows = [{"id": id_, "client_address": f"127.0.0.1:{free_port()}",
             "peer_address": f"127.0.0.1:{free_port()}"} for id_ in (1, 2, 3)]
    config = parse({"node": {**rows[0], "data_dir": "data"},
                    "cluster": {"id": CLUSTER, "groups": 2, "replication_factor": 3,
                                "nodes": rows}}, directory)
    config.data_dir.mkdir()
    registry.write(RealFilesystem(), str(config.data_dir),
                      initial_facts(config)._replace(admitted=True))
    return config


@contextlib.asynccontextmanager
async def running(config: NodeConfig) -> AsyncIterator[Node]:
    """One life of the node, stopped in order."""
    node = make_node(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await until(lambda: node.life.phase == SERVING)
        yield node
        node.driver.rounds.stop()
        nursery.cancel_scope.cancel()
    node.close()


def open_store(config: NodeConfig) -> Store:
    """The directory of a node that does not run."""
    return Store.open(str(config.data_dir), RealFilesystem(),
                      Identity(config.cluster_id, config.node.id, process=draw_process_number()))


def history(config: NodeConfig, term: int, *names: str) -> tuple[Entry, ...]:
    """A log of the metadata group: the cluster, and topics."""
    commands = [plan_of(initial_facts(config)),
                *(CreateTopic(name, name.encode().ljust(16), 1) for name in names)]
    return (Entry(EntryKind.NOOP, METADATA_GROUP, 1, term, 1),
            *(Entry(EntryKind.METADATA, METADATA_GROUP, 1, term, at,
                    payload=encode_command(command))
              for at, command in enumerate(commands, 2)))


def say(node: Node, leader: int, incarnation: int, term: int, entries: tuple[Entry, ...],
        prev_index: int = 0) -> None:
    """An append of a leader, all of it committed."""
    last = entries[-1].index if entries else prev_index
    node.core.step(leader, Append(METADATA_GROUP, incarnation, term, prev_index, 0, last, last,
                                  entries))
    node.request_round()


def topics(node: Node) -> set[str]:
    """Those of all the names used here that the node knows."""
    state = node.metadata.log.state
    return {name for name in ("kept", "lost", "new") if state.topic(name) is not None}


def is_learner(node: Node) -> bool:
    """Return True if the replica is a learner of the present incarnation."""
    return (METADATA_GROUP in node.core.status.groups()
            and node.core.status.of(METADATA_GROUP).incarnation == 2)


async def come_back(node: Node, entries: tuple[Entry, ...], learns: bool = True) -> None:
    """The survivor has this node as a learner, and sends all that it has."""
    while not is_learner(node):
        say(node, SURVIVOR, 2, 9, (), entries[-1].index)
        await trio.sleep(0.01)
    if learns:
        say(node, SURVIVOR, 2, 9, entries)


@in_trio
async def test_what_only_lost_nodes_knew_is_forgotten_by_who_comes_back(tmp_path):
    """The returning node had applied commands that the recovered log does not have, and took their
    successors for applied: it looked for partitions in the wrong groups, and accepted appends for
    them there."""
    config = first_of_three(tmp_path)
    async with running(config) as node:
        say(node, OLD_LEADER, 1, 1, history(config, 1, "kept", "lost"))
        await until(lambda: topics(node) == {"kept", "lost"})
    async with running(config) as node:
        assert topics(node) == {"kept", "lost"}
        assert node.metadata.directory.locate(2).topic.name == "lost"
        await come_back(node, history(config, 1, "kept", "new"))
        await until(lambda: node.metadata.log.state.version == 4
                    and node.core.status.applied_index(METADATA_GROUP) == 4, "it has all of it")
        assert topics(node) == {"kept", "new"}
        assert node.metadata.directory.locate(2).topic.name == "new"


@in_trio
async def test_a_crash_before_it_has_learned_anything_keeps_nothing_of_it_either(tmp_path):
    """The last checkpoint has what was applied by the replica that is gone."""
    config = first_of_three(tmp_path)
    async with running(config) as node:
        say(node, OLD_LEADER, 1, 1, history(config, 1, "kept", "lost"))
        await until(lambda: topics(node) == {"kept", "lost"})
    async with running(config) as node:
        await come_back(node, history(config, 1, "kept", "new"), learns=False)
        await until(lambda: not node.core.has_work and node.storage.gather.idle,
                    "that is on the disk")
    for _ in range(2):
        async with running(config) as node:
            await come_back(node, history(config, 1, "kept", "new"))
            await until(lambda: topics(node) == {"kept", "new"})


async def recovered(tmp_path, **limits):
    """The configuration of a node that knew one topic, and whose metadata were recovered by force
    while it did not run."""
    config = first_of_three(tmp_path)
    async with running(config) as node:
        say(node, OLD_LEADER, 1, 1, history(config, 1, "kept"))
        await until(lambda: topics(node) == {"kept"})
    store = open_store(config)
    raft = dataclasses.replace(config.raft, **limits)
    recover.recover(store, dataclasses.replace(config, raft=raft), random.Random(1))
    store.close()
    return config


@in_trio
async def test_what_lost_commands_gave_away_is_given_to_nobody_else(tmp_path):
    """Groups that lost nothing have the records of a topic that the recovered metadata do not have,
    and know its producers: a new topic of the same incarnation showed them as its own, and a new
    producer of the same id got receipts for batches of the old one."""
    async with running(await recovered(tmp_path)) as node:
        await until(lambda: node.core.status.has_applied_in_term(METADATA_GROUP))
        assert topics(node) == {"kept"}
        created = await node.metadata.log.propose(CreateTopic("new", b"new".ljust(16), 1))
        assert created.value.incarnation > LOST_MAX
        given = await node.metadata.log.propose(AllocateProducerIds(1000))
        assert given.value.first > LOST_MAX
        node.metadata.log.state._check()


@in_trio
async def test_who_has_seen_metadata_that_are_lost_does_not_wait_for_them(tmp_path):
    """A client names the newest metadata index that it has seen, and the node makes it wait for
    that index.  A recovered cluster with few changes never reaches the index, so the client could
    not even ask for the leader."""
    async with running(await recovered(tmp_path)) as node:
        await until(lambda: node.core.status.has_applied_in_term(METADATA_GROUP))
        async with await Client.open(node) as client:
            answer = await client.ask(ListTopics(), seen_index=SEEN_MAX)
            assert [topic.name for topic in answer.reply.topics] == ["kept"]


@in_trio
async def test_small_limits_do_not_end_a_recovery_half_way(tmp_path):
    """It uses up ids by more entries than a leader may have uncommitted here."""
    async with running(await recovered(tmp_path, uncommitted_entries_max=100)) as node:
        await until(lambda: node.core.status.has_applied_in_term(METADATA_GROUP))
        assert topics(node) == {"kept"}
