"""Members of groups in the metadata: leaders report them, and the metadata leader keeps
learners."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.errors import ProposalError
from multiraft.types import Configuration
from multiraft.wire.errors import LeaderUnknown
from multiraft.wire.nodes import ReportMembers
from node.cluster import config_reports as reports_module
from node.cluster.config_reports import MemberReports
from node.cluster.metadata_learners import MetadataLearners
from node.metadata.state_machine import MetadataState, RegisterNode, RemoveNode
from node.metadata.state_machine import RecordMembers as RecordCommand
from tests.node.harness import in_trio, silent_log, until
from tests.node.metadata.test_state_machine import bootstrap, node


class ClusterView:
    """Metadata of three nodes, and a core with one configuration for every group."""

    node = 1

    def __init__(self):
        self.state = MetadataState()
        self.apply(bootstrap())
        self.status = self  # as core.status
        self.configuration = Configuration((1, 2, 3))
        self.index = 0
        self.commit = 100
        self.leads = True
        self.looked_at = 0
        self.asked: list = []
        self.problems: list = []
        self.changes: list = []

    def apply(self, command):
        return self.state.apply(self.state.version + 1, command)

    def is_leader(self, _group):
        return self.leads

    def of(self, _group):
        self.looked_at += 1
        return SimpleNamespace(incarnation=1, configuration=self.configuration,
                               configuration_index=self.index, commit=self.commit)

    def change_members(self, group, voters, learners):
        if self.problems:
            raise self.problems.pop()
        self.changes.append((group, voters, learners))

    async def ask(self, request):
        if self.problems:
            raise self.problems.pop()
        self.asked.append(request)
        self.apply(RecordCommand(*request))

    async def reported(self, *groups: int) -> list:
        """Return the reports after these groups were noted, once no group waits."""
        reports = MemberReports(self, self, self)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reports.run)
            for group in groups:
                reports.note(group)
            await trio.testing.wait_all_tasks_blocked(0.001)
            await until(lambda: not reports._noted)
            await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
        return self.asked

    @property
    def metadata_log(self):
        return self


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(reports_module, "RETRY_S", 0.001)


@in_trio
async def test_a_group_as_it_was_created_is_not_reported():
    world = ClusterView()
    world.configuration = world.state.initial_configuration(5)
    assert await world.reported(5) == []


@in_trio
async def test_a_changed_group_is_reported_once():
    world = ClusterView()
    world.apply(RegisterNode(node(4)))
    world.configuration, world.index = Configuration((1, 2, 4)), 40
    assert await world.reported(5) == [ReportMembers(5, 1, 40, (1, 2, 4))]
    assert await world.reported(5, 5) == world.asked[:1]
    assert world.state.configuration(5) == world.configuration


@in_trio
async def test_only_the_leader_of_a_group_reports_it():
    world = ClusterView()
    world.configuration, world.index, world.leads = Configuration((1, 2)), 40, False
    assert await world.reported(5) == []


@in_trio
async def test_what_is_not_committed_is_not_reported_yet():
    world = ClusterView()
    world.configuration, world.index, world.commit = Configuration((1, 2)), 40, 39
    reports = MemberReports(world, world, world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reports.run)
        reports.note(5)
        await until(lambda: world.looked_at > 3)
        assert not world.asked
        world.commit = 40
        await until(lambda: world.asked)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_report_is_repeated_until_the_metadata_have_it():
    world = ClusterView()
    world.configuration, world.index = Configuration((1, 2)), 40
    world.problems = [LeaderUnknown("electing"), LeaderUnknown("electing")]
    assert await world.reported(5) == [ReportMembers(5, 1, 40, (1, 2))]


# ---- learners ------------------------------------------------------------------------------------


def looked(world: ClusterView) -> list:
    MetadataLearners(world, world, lambda: None, silent_log()).check()
    return world.changes


def test_a_node_that_joined_becomes_a_learner_of_the_metadata_group():
    world = ClusterView()
    assert looked(world) == []
    world.apply(RegisterNode(node(4)))
    world.apply(RegisterNode(node(5)))
    assert looked(world) == [(0, (1, 2, 3), (4, 5))]


def test_a_node_that_was_removed_stops_being_one():
    world = ClusterView()
    world.apply(RegisterNode(node(4)))
    world.configuration = Configuration((1, 2, 3), (4,))
    assert looked(world) == []
    world.apply(RemoveNode(4))
    assert looked(world) == [(0, (1, 2, 3), ())]


def test_a_change_that_is_under_way_is_waited_for():
    world = ClusterView()
    world.apply(RegisterNode(node(4)))
    world.configuration = Configuration((1, 2), (), (1, 2, 3))
    assert looked(world) == []
    world.configuration = Configuration((1, 2, 3))
    world.problems = [ProposalError("a transfer")]
    assert looked(world) == []
    assert looked(world) == [(0, (1, 2, 3), (4,))]
