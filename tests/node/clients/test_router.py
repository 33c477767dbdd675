"""The router: locations are cached exactly as long as they are current."""

from types import SimpleNamespace

from multiraft.errors import UnknownPartition
from multiraft.wire.errors import Code
from node.bootstrap import initial_facts, plan_of
from node.clients import router as directory_module
from node.clients.error_codes import StaleMetadata, refusal
from node.clients.router import Router
from node.config import parse
from node.metadata.state_machine import CreateTopic, DeleteTopic, MetadataState
from node.peers.registry import PeerRegistry
from tests.node.harness import one_node_table


class ClusterView:
    """The metadata of one node, and a core with the leader hints that the test sets."""

    def __init__(self, tmp_path):
        facts = initial_facts(parse(one_node_table(), tmp_path))
        self.state = MetadataState()
        self.located = 0
        self.hint = (0, 0)
        world = self

        class Counting(SimpleNamespace):
            version = property(lambda self: world.state.version)

            def locate(self, incarnation):
                world.located += 1
                return world.state.locate(incarnation)

        core = SimpleNamespace(
            node=1, status=SimpleNamespace(leader_hint=lambda group: self.hint))
        self.directory = Router(core, SimpleNamespace(state=Counting()),
                                   PeerRegistry(None, "", 1, facts))
        self.apply(plan_of(facts))

    def apply(self, command):
        return self.state.apply(self.state.version + 1, command).value

    def create(self, name: str, partitions: int = 1) -> int:
        return self.apply(CreateTopic(name, name.encode().ljust(16), partitions)).incarnation


def test_a_place_is_asked_for_once_while_nothing_changes(tmp_path):
    world = ClusterView(tmp_path)
    first = world.create("t", 2)
    for _ in range(3):
        place = world.directory.locate(first + 1)
        assert (place.topic.name, place.partition) == ("t", 1)
    assert world.located == 1


def test_a_deleted_topic_is_unknown_at_once(tmp_path):
    world = ClusterView(tmp_path)
    first = world.create("t")
    assert world.directory.locate(first) is not None
    world.apply(DeleteTopic("t", b"t".ljust(16)))
    assert world.directory.locate(first) is None


def test_what_does_not_exist_is_not_remembered(tmp_path):
    world = ClusterView(tmp_path)
    for hostile in range(100, 200):
        assert world.directory.locate(hostile) is None
    assert not world.directory._locations


def test_the_cache_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_module, "LOCATIONS_CACHED_MAX", 4)
    world = ClusterView(tmp_path)
    first = world.create("t", 20)
    for number in range(20):
        assert world.directory.locate(first + number).partition == number
        assert len(world.directory._locations) <= 4


def test_only_who_is_not_behind_calls_a_partition_unknown(tmp_path):
    world = ClusterView(tmp_path)
    applied = world.directory.metadata_index
    assert type(world.directory.unknown(9, applied)) is UnknownPartition
    behind = world.directory.unknown(9, applied + 1)
    assert type(behind) is StaleMetadata
    assert refusal(behind, None)[0] == Code.STALE_METADATA


def test_the_leader_is_named_with_its_address_when_it_is_another(tmp_path):
    world = ClusterView(tmp_path)
    assert world.directory.leader_detail(1)[0] == Code.LEADER_UNKNOWN
    world.hint = (1, 5)  # this node itself, which no longer leads
    assert world.directory.leader_detail(1)[0] == Code.LEADER_UNKNOWN
    world.hint = (2, 5)
    code, detail = world.directory.leader_detail(1)
    assert (code, detail.leader, detail.leader_address) == (Code.NOT_LEADER, 2, "")
