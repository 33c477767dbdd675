"""Effects of events and commits on pending appends, polls and metadata, and the order of these
effects."""

import logging
from types import SimpleNamespace

from multiraft.errors import UnknownGroup
from multiraft.raft.ready import Committed, Event
from multiraft.raft.status import Role
from multiraft.types import METADATA_GROUP
from node.clients.read_index import NEVER_MS
from node.loop.applier import Applier
from node.loop.event_reports import EventReports
from node.loop.leadership_notifier import LeadershipNotifier
from tests.node.harness import silent_log


class ClusterView:
    """Collaborators of an applier that record every call, in order."""

    def __init__(self):
        self.log: list = []
        self.changes: list = []
        self.here = {3}
        self.sessions = SimpleNamespace(flush=self.note("flush"), to_flush={})
        self.fetch_handler = SimpleNamespace(
            committed=self.note("woken"), retry_due=self.note("wake"),
            stop=self.note("stop fetching"), due={}, earliest_ms=8)
        part = SimpleNamespace
        self.read_index_requests = part(
            lost=self.note("doubted"), ready=self.note("confirmed"),
            committed=self.note("reads settled"), expire=self.note("doubts"),
            stop=self.note("stop confirming"), waiting={}, earliest_ms=NEVER_MS)
        core = part(applied=self.note("applied"), status=part(
            durable_index=self.durable_index, has_group=lambda group: group in self.here,
            is_leader=lambda group: True, leader_hint=lambda group: (2, 7)))
        changes = part(
            role_changed=self.change("role"), support_changed=self.change("support"),
            transfer_changed=self.change("transfer"), replica_removed=self.change("removed"),
            configuration_changed=self.change("configuration"))
        self.applier = Applier(
            core,
            part(quarantine=self.note("stored quarantine")),
            part(apply=self.note("metadata"), lead=self.note("lead"),
                 role_changed=self.note("metadata role")),
            part(lost=self.note("lost"), committed=self.note("committed"),
                 durable=self.note("durable"), groups_waiting_for_durable=lambda: (3,),
                 expire=self.note("expire"), stop=self.note("stop pending"), earliest_ms=7),
            self.fetch_handler, self.read_index_requests, self.sessions, LeadershipNotifier(),
            part(due=False), EventReports(core, changes, silent_log()), part(waiting={}))

    def durable_index(self, group: int) -> int:
        if group not in self.here:
            raise UnknownGroup(f"group {group}")
        return 5

    def change(self, name: str):
        return lambda *args: self.changes.append((name, *args))

    def note(self, name: str):
        return lambda *args: self.log.append((name, *args))


def role(group: int, role: Role) -> Event:
    return Event("role_changed", group, (role, 4, 1, ""))


def test_a_deposed_leader_answers_for_nothing_even_when_it_leads_again():
    world = ClusterView()  # whose core says that it leads, as it does after both events
    world.applier.observe([role(3, Role.FOLLOWER), role(3, Role.LEADER)])
    assert world.log == [("lost", 3), ("doubted", 3), ("woken", 3)]
    assert world.applier.elections == 1


def test_campaigning_is_not_winning():
    world = ClusterView()
    world.applier.observe([role(3, Role.PRE_CANDIDATE), role(3, Role.CANDIDATE)])
    assert world.applier.elections == 0


def test_a_damaged_replica_is_remembered_by_the_store():
    world = ClusterView()
    world.applier.observe([Event("replica_quarantined", 3, ("crc",)), Event("quiesced", 4, ())])
    assert world.log == [("stored quarantine", 3, "crc"), ("woken", 3)]


def test_a_write_that_ends_behind_the_removal_of_its_group_ends_nothing_else():
    """A replica of an earlier incarnation is removed at the end of a round, and its pending appends
    fail in the next round."""
    world = ClusterView()
    world.applier.durable()
    world.here.clear()
    world.applier.durable()
    assert world.log == [("durable", 3, 5)]


def test_what_is_logged_names_group_and_term(caplog):
    world = ClusterView()
    with caplog.at_level(logging.DEBUG, "tests.node"):
        world.applier.observe([Event("replica_quarantined", 3, ("crc",)), role(4, Role.LEADER),
                                Event("lease_changed", -1, (2, "lost"))])
    said = [(line.message, line.levelname, getattr(line, "group", None),
             getattr(line, "term", None), getattr(line, "peer", None)) for line in caplog.records]
    assert said == [("replica_quarantined", "ERROR", 3, 7, None),
                    ("replica_role_changed", "DEBUG", 4, 4, None),
                    ("support_lost", "INFO", None, None, 2)]
    assert caplog.records[0].reason == "crc"


def test_changes_of_nodes_leadership_and_members_are_collected():
    world = ClusterView()
    world.applier.observe([
        Event("lease_changed", -1, (2, "held", 6)), Event("lease_changed", -1, (2, "lost")),
        Event("leadership_transfer", 3, (2, "started")), role(3, Role.LEADER),
        Event("configuration_changed", 3, ((1, 2), ()))])
    assert world.changes == [
        ("support", 2, "held", 6), ("support", 2, "lost"), ("transfer", 3, 2, "started"),
        ("role", 3, Role.LEADER, 1, ""), ("configuration", 3)]


def test_the_metadata_are_applied_before_the_core_hears_of_it():
    world = ClusterView()
    world.applier.apply([Committed(METADATA_GROUP, 2, 4), Committed(3, 7, 9)])
    assert world.log == [
        ("metadata", 2, 4), ("applied", 0, 4), ("lead",), ("committed", 0, 4), ("woken", 0),
        ("applied", 3, 9), ("committed", 3, 9), ("woken", 3)]


def test_the_metadata_log_hears_of_its_own_group_only():
    world = ClusterView()
    world.applier.observe([role(3, Role.LEADER), role(METADATA_GROUP, Role.FOLLOWER)])
    assert ("metadata role", False) in world.log
    assert sum(entry[0] == "metadata role" for entry in world.log) == 1


def test_an_end_of_round_does_what_is_due_and_nothing_else():
    world = ClusterView()
    world.applier.answer(6)
    assert world.log == []
    world.applier.answer(7)
    assert world.log == [("expire", 7)]
    world.applier.answer(8)
    assert world.log[1:] == [("expire", 8), ("wake", 8)]
    world.fetch_handler.due[1] = None
    world.sessions.to_flush[1] = None
    world.applier.answer(6)
    assert world.log[3:] == [("wake", 6), ("flush",)]


def test_a_confirmed_leader_is_told_of():
    world = ClusterView()
    world.applier.confirmed(["read"])
    assert world.log == [("confirmed", ["read"])]


def test_those_who_wait_for_a_confirmation_are_looked_at_only_when_there_are_any():
    world = ClusterView()
    world.applier.apply([Committed(3, 7, 9)])
    world.applier.answer(5)
    assert not {"reads settled", "doubts"} & {entry[0] for entry in world.log}
    world.read_index_requests.waiting[1], world.read_index_requests.earliest_ms = "question", 5
    world.applier.apply([Committed(3, 10, 11)])
    world.applier.answer(5)
    assert {("reads settled", 3), ("doubts", 5)} < set(world.log)


def test_a_stop_answers_and_then_flushes():
    world = ClusterView()
    world.applier.stop()
    assert [entry[0] for entry in world.log] == [
        "stop pending", "stop confirming", "stop fetching", "flush"]
