"""Faults of disks, clocks and links: their effects, and the reactions of nodes."""

from __future__ import annotations

import dataclasses
import errno
import random
from collections import Counter

import pytest

from chaos.planted.bug import Bug, Seeds, planted
from chaos.planted.catalogue import BUGS
from chaos.simulator import simulation
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.clock import SkewedClock
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import SimulatedNetwork
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.env.violations import Violation
from chaos.simulator.faults import partial_heal
from chaos.simulator.node.machine.coroutines import start
from chaos.simulator.node.machine.page_cache import survives_power_loss
from chaos.simulator.node.machine.simulated_disk import RESERVE_FILE, SimulatedReserve
from chaos.simulator.node.metadata import membership
from chaos.simulator.simulation import Simulation
from multiraft.storage.errors import CorruptRange
from multiraft.types import EntryKind
from multiraft.wire.plans import StartReplicaChange


def filesystem_with(data: bytes) -> SimulatedFilesystem:
    filesystem = SimulatedFilesystem()
    filesystem.make_directory("/d")
    filesystem.create("/d/f").write([data], 0, sync=True)
    filesystem.sync_directory("/d")
    return filesystem


def contents(filesystem: SimulatedFilesystem) -> bytes:
    file = filesystem.open("/d/f")
    return file.read(file.size(), 0)


def test_sync_after_a_failed_sync_lies():
    lost = 0
    for seed in range(50):
        filesystem = filesystem_with(b"a" * 1024)
        filesystem.faults.rng = random.Random(seed)
        filesystem.faults.syncs_left = 1
        file = filesystem.open("/d/f")
        with pytest.raises(OSError) as failed:
            file.write([b"b" * 1024], 0, sync=True)
        assert failed.value.errno == errno.EIO
        file.sync()
        assert contents(filesystem) == b"b" * 1024
        filesystem.process_death(random.Random(seed))
        assert contents(filesystem) == b"b" * 1024
        filesystem.power_loss(random.Random(seed))
        lost += contents(filesystem) != b"b" * 1024
    assert 10 < lost < 50


def test_writing_again_after_a_failed_sync_does_not_lie():
    filesystem = filesystem_with(b"a" * 1024)
    filesystem.faults.syncs_left = 1
    file = filesystem.open("/d/f")
    with pytest.raises(OSError):
        file.write([b"b" * 1024], 0, sync=True)
    file.write([b"b" * 1024], 0, sync=True)
    filesystem.power_loss(random.Random(1))
    assert contents(filesystem) == b"b" * 1024


def test_failed_write_stops_at_a_sector():
    found = set()
    for seed in range(20):
        filesystem = filesystem_with(b"")
        filesystem.faults.rng = random.Random(seed)
        filesystem.faults.writes_left = 1
        with pytest.raises(OSError):
            filesystem.open("/d/f").write([b"b" * 1500], 0, sync=True)
        found.add(len(contents(filesystem)))
    assert found == {0, 512, 1024}


def test_room_is_taken_by_files_and_given_back():
    filesystem = filesystem_with(b"a" * 1000)
    filesystem.faults.capacity_bytes = 3000
    file = filesystem.create("/d/g")
    file.preallocate(2000)
    file.write([b"b" * 2000], 0, sync=True)
    for grow in (lambda: file.write([b"c"], 2000, sync=False), lambda: file.preallocate(2001)):
        with pytest.raises(OSError) as failed:
            grow()
        assert failed.value.errno == errno.ENOSPC
    assert file.size() == 2000
    filesystem.remove("/d/f")
    file.write([b"c" * 1000], 2000, sync=True)
    filesystem.sync_directory("/d")
    filesystem.power_loss(random.Random(1))
    assert filesystem.list("/d") == ["g"]
    assert filesystem.faults.free_bytes == 0


def test_a_reserve_that_a_loss_of_power_brings_back_holds_what_it_owns():
    """The disk space of a removed reserve is free, even if a power loss undoes the removal.

    A write that found no disk space was reported to have ended its node with an untouched reserve.
    """
    for seed in range(40):
        filesystem = filesystem_with(b"")
        filesystem.make_directory("/data")
        reserve = SimulatedReserve(filesystem, 4096)
        assert reserve.allocate() and reserve.held_bytes == 4096
        filesystem.sync_directory("/data")
        reserve.release()
        filesystem.faults.capacity_bytes = filesystem.faults.used_bytes
        filesystem.power_loss(random.Random(seed))
        if filesystem.exists(RESERVE_FILE):
            break
    assert reserve.held_bytes == filesystem.faults.used_bytes == 0
    assert not reserve.allocate() and not filesystem.exists(RESERVE_FILE)
    filesystem.faults.heal()
    assert reserve.allocate() and reserve.held_bytes == filesystem.faults.used_bytes == 4096


def test_clock_runs_at_its_rate_and_never_back():
    queue = EventQueue()
    clock = SkewedClock(queue)
    queue.run_until(1_000_000)
    assert clock.now_ms == 1000
    clock.drift(1.1)
    queue.run_until(2_000_000)
    assert clock.now_ms == 2100
    clock.drift(0.9, jump_us=500_000)
    assert clock.now_ms == 2600
    queue.run_until(3_000_000)
    assert clock.now_ms in (3499, 3500)
    wait_us = clock.until_us(4000)
    queue.run_until(3_000_000 + wait_us)
    assert clock.now_ms == 4000


def test_the_wall_clock_runs_with_the_clock_and_can_be_shifted():
    queue = EventQueue()
    clock, other = SkewedClock(queue), SkewedClock(queue)
    queue.run_until(1_000_000)
    clock.shift_ms = -90_000
    clock.drift(1.0, jump_us=500_000)
    assert clock.now_ms == 1500
    assert other.wall_ms - clock.wall_ms == 89_500


def test_one_channel_of_a_link_can_be_cut():
    queue = EventQueue()
    parameters = Parameters.draw(1).network
    network = SimulatedNetwork(queue, random.Random(1), dataclasses.replace(
        parameters, loss=0, duplication=0, item_loss=0, reorder=0), {})
    arrived = []
    network.block([(1, 2, "append")])
    for channel in ("append", "liveness"):
        network.send(1, 2, channel, (channel,), lambda sender, frame: arrived.extend(frame))
    network.send(2, 1, "append", ("back",), lambda sender, frame: arrived.extend(frame))
    queue.run_until(10_000_000)
    assert sorted(arrived) == ["back", "liveness"]


# ---- whole nodes -----------------------------------------------------------------------------


def running(seed: int, **parameters) -> Simulation:
    """Yield a cluster under load, without faults."""
    drawn = Parameters.draw(seed, nodes=3, groups=8, safety_ms=1000)
    calm = dataclasses.replace(drawn.network, loss=0, duplication=0, item_loss=0, reorder=0)
    made = Simulation(dataclasses.replace(drawn, faults=("disk-full",), network=calm, **parameters))
    for node in made.nodes.values():
        node.start()
    made.run_for(simulation.WARM_UP_MS)
    made.workload.start()
    made.run_for(2000)
    return made


def finish(made: Simulation) -> None:
    """Heal everything and check convergence."""
    live = made.heal()
    made.converge(live)


@pytest.mark.parametrize("arm", ["arm_write_error", "arm_sync_error"])
def test_disk_error_ends_the_node_and_it_comes_back(arm):
    made = running(3)
    getattr(made.nodes[1].disk, arm)(2)
    made.run_for(5000)
    assert made.event_counts["stopped by its disk"] == 1
    assert made.nodes[1].env.counters.crashes == 1
    assert made.nodes[1].is_up, "whoever watches it has started it again"
    finish(made)


def test_groups_leave_a_node_whose_disk_hangs():
    made = running(5)
    busiest = max(made.nodes.values(), key=lambda node: len(node.view.led_groups()))
    groups = busiest.view.led_groups()
    assert groups
    busiest.disk.hang()
    made.run_for(8000)
    others = {group for node in made.nodes.values() if node is not busiest
              for group in node.view.led_groups()}
    assert set(groups) <= others
    assert busiest.boot.worker.is_stalled(busiest.env.now_ms)
    before = made.workload.acked
    made.run_for(3000)
    assert made.workload.acked > before
    busiest.disk.release()
    finish(made)


def test_idle_node_notices_that_its_disk_hangs():
    made = running(5)
    made.workload.stop()
    made.run_for(8000)
    busiest = max(made.nodes.values(), key=lambda node: len(node.view.led_groups()))
    groups = busiest.view.led_groups()
    assert groups and not busiest.boot.worker.is_stalled(busiest.env.now_ms)
    busiest.disk.hang()
    made.run_for(5000)
    assert busiest.boot.worker.is_stalled(busiest.env.now_ms)
    others = {group for node in made.nodes.values() if node is not busiest
              for group in node.view.led_groups()}
    assert set(groups) <= others
    busiest.disk.release()
    finish(made)


def test_a_full_disk_leaves_the_leading_to_others():
    made = running(7)
    full = max(made.nodes.values(), key=lambda node: len(node.view.led_groups()))
    groups, acked = full.view.led_groups(), made.workload.acked
    full.disk.fill(0)
    made.run_for(5000)
    assert full.boot.space.guard.full and made.event_counts["made way for records"] >= len(groups)
    assert not full.view.led_groups()
    assert made.workload.acked > acked
    waiting = [append for stream in made.workload._streams.values() for append in stream.open]
    assert not any(append.last_error for append in waiting), "nobody waits for room any more"
    full.disk.free()
    finish(made)


def test_full_disks_refuse_records_and_keep_their_leaders():
    made = running(7)
    for node in made.nodes.values():
        node.disk.fill(0)
    made.run_for(2000)  # until each node knows that the others are full as well
    changes = made.state_checker.leader_changes
    refused, acked = made.workload.refused, made.workload.acked
    made.run_for(5000)
    assert made.event_counts["disk full"] == 3
    assert made.workload.acked == acked, "no records are taken"
    assert made.workload.refused > refused
    last = [append.last_error for stream in made.workload._streams.values()
            for append in stream.open if append.last_error]
    assert "STORAGE_FULL" in last
    assert made.state_checker.leader_changes == changes
    node = max(made.nodes.values(), key=lambda node: len(node.view.led_groups()))
    for _ in range(10):  # terms and votes are still written
        node.boot.leadership.transfer_some(random.Random(1))
        made.run_for(300)
    assert made.state_checker.leader_changes > changes
    for node in made.nodes.values():
        node.disk.free()
    made.run_for(3000)
    assert made.event_counts["room again"] == 3
    assert made.workload.acked > acked
    assert all(node.env.counters.crashes == 0 for node in made.nodes.values())
    finish(made)


# ---- wall clocks -------------------------------------------------------------------------------


def far(made: Simulation) -> list[int]:
    """Return the nodes that know that their wall clocks are far from those of the others."""
    return [node.node for node in made.nodes.values() if node.boot.liveness.clock_skew.is_far]


@pytest.mark.parametrize("shift_ms", [75_000, -75_000])
def test_a_node_knows_soon_that_its_wall_clock_is_far(shift_ms):
    made = running(5)
    skews_ms = [node.boot.liveness.clock_skew.skew_ms for node in made.nodes.values()]
    assert all(skew_ms is not None and abs(skew_ms) < 1000 for skew_ms in skews_ms)
    made.nodes[2].env.clock.shift_ms = shift_ms
    # A heartbeat and its response, and the turn of the thread that compares.
    made.run_for(3 * made.parameters.raft.lease_ms)
    assert far(made) == [2]
    skew_ms = made.nodes[2].boot.liveness.clock_skew.skew_ms
    assert abs(skew_ms - shift_ms) < 1000
    made.nodes[2].env.clock.shift_ms = 0
    made.run_for(3 * made.parameters.raft.lease_ms)
    assert far(made) == []
    finish(made)


def test_small_shifts_of_wall_clocks_are_not_far():
    made = running(5)
    for node, shift_ms in ((1, 20_000), (2, -25_000), (3, 0)):
        made.nodes[node].env.clock.shift_ms = shift_ms
    for _ in range(10):
        made.run_for(1000)
        assert far(made) == []
    finish(made)


# ---- relaxed durability, snapshots, rot with members -------------------------------------------


def relaxed(seed: int, **changes) -> Parameters:
    drawn = Parameters.draw(seed, groups=6, safety_ms=8_000)
    disk = dataclasses.replace(drawn.disk, flush_interval_ms=500)
    return dataclasses.replace(drawn, disk=disk, **changes)


def test_relaxed_nodes_lose_nothing_when_their_processes_die():
    results = [simulation.run(relaxed(seed, faults=("kill", "crash-midway", "crash-in-write",
                                               "transfer", "members")))
               for seed in range(1, 8)]
    assert [result.failure for result in results] == [""] * 7
    assert sum(result.crashes for result in results) > 10


def test_relaxed_nodes_lose_records_when_the_power_goes_everywhere():
    """Control experiment: without a loss here, the simulator could not find one anywhere."""
    results = [simulation.run(relaxed(seed, control=True, faults=("cluster-power",)))
               for seed in range(1, 9)]
    assert any("DurableSurvives" in result.failure for result in results)


def test_nobody_forgets_what_is_not_synced_while_another_node_is_damaged():
    """The copies and the vote of a damaged node do not count.

    An unsynced record elsewhere was the only other copy of a damaged one.  A power loss took it,
    and the run ended as if the loss had been promised.
    """
    drawn = Parameters.draw(3)
    made = running(3, disk=dataclasses.replace(drawn.disk, flush_interval_ms=500))
    damaged, other = made.nodes[1], made.nodes[2]
    assert not survives_power_loss(other.env, made)
    place = damaged.damage.durable_places()[-1]
    damaged.damage.rot(place.path, place.at, 0)
    assert survives_power_loss(other.env, made)
    assert not survives_power_loss(damaged.env, made)
    damaged.boot.repair.scrub_soon()
    made.run_for(10_000)
    assert damaged.is_whole and not survives_power_loss(other.env, made)


def test_a_replica_that_no_repair_brings_back_is_not_whole():
    """The repair coordinator gave the replica up, the node counted as whole, and others could be
    damaged.
    """
    node = running(3).nodes[1]
    node.damage.rotten = True
    assert node.is_whole
    node.boot.store.table.logs[2].damage.quarantine_permanently("it makes no sense")
    coordinator = node.boot.repair.coordinator
    coordinator.groups.add(2)
    assert coordinator.step(2) is None and not coordinator.groups
    assert not node.is_whole
    assert node.view.under_repair() == ["g2 it makes no sense"]


def test_old_rot_does_not_excuse_a_quarantine_of_which_the_disk_knows_nothing():
    """After bit rot on its node, a replica could quarantine itself for any reason without a
    violation.
    """
    made = running(3)
    node = made.nodes[1]
    node.damage.rotten = True
    node.boot.raft.repair.quarantine(2, "entry 7@1 of node 2: an offset is missing")
    node.boot.rounds.request()
    with pytest.raises(Violation, match="NothingIsDamaged: n1 g2 quarantined itself"):
        made.run_for(1000)


def test_old_rot_does_not_excuse_damage_where_nothing_rotted():
    node = running(3).nodes[1]
    place = next(place for place in node.damage.durable_places() if place.kind == EntryKind.DATA)
    node.damage.rotten = True
    error = CorruptRange(place.group, place.index, "another entry is in its place")
    with pytest.raises(Violation, match="NothingIsDamaged: n1 reads what never rotted"):
        node.boot.repair.found(error)
    node.damage.rot(place.path, place.at + place.length - 1, 0)
    node.boot.repair.found(error)
    assert not node.is_whole


def test_rot_of_an_index_file_excuses_nothing():
    made = running(3)
    node = made.nodes[1]
    while not node.damage.index_files():
        made.run_for(1000)
    for path, data in node.damage.index_files().items():
        node.damage.rot_beside(path, len(data) // 2, 3)
    node.crash(power=False)
    node.start()
    made.run_for(2000)
    assert node.is_up and not node.damage.rotten and not node.boot.store.damage
    finish(made)


def test_an_index_file_of_a_damaged_node_rots_only_while_all_others_are_whole():
    """Seed 790000003019: the file was the only record of the end of a segment whose header was
    damaged.

    Its node had a recovering head again while another node had one, so no leader could be elected.
    """
    made = running(3)
    node, other = made.nodes[1], made.nodes[2]
    while not node.damage.index_files():
        made.run_for(1000)
    made.nemesis.injector.draw_node = lambda: node
    node.damage.rotten = other.damage.rotten = other.damage.unread = True
    made.atlas.note_lost(other.node)
    made.nemesis.cause("rot-beside")
    assert made.faults["rot-beside"] == 0
    other.damage.rotten = other.damage.unread = False
    made.nemesis.cause("rot-beside")
    assert made.faults["rot-beside"] == 1
    assert made.atlas.damaged_nodes == {node.node} and not node.has_recovered


def leader_of_three(made: Simulation) -> tuple[int, int, int, int]:
    """Return (group, its leader, the other voters)."""
    return next((group, number, *(other for other in (1, 2, 3) if other != number))
                for number, node in made.nodes.items() for group in node.view.led_groups()
                if group and node.view.configuration(group).voters == (1, 2, 3))


@pytest.mark.parametrize("way", ["asked", "drawn", "returned", "planned"])
def test_nobody_is_lost_whom_a_leader_has_just_come_to_need(way, monkeypatch):
    """A configuration is in force on the leader one round before its messages leave.

    A fault in between could take one of its two voters, and the group made no more progress.
    """
    made = running(3)
    group, leader, kept, left = leader_of_three(made)
    node, wanted = made.nodes[leader], tuple(sorted((leader, kept)))
    assert made.atlas.may_lose(kept) and made.atlas.may_lose(leader)
    if way == "asked":
        node.boot.membership._set_members(group, wanted, ())
    elif way == "drawn":
        monkeypatch.setattr(membership, "draw_members", lambda *_: (wanted, ()))
        monkeypatch.setattr(membership, "CHANGES_AT_ONCE", len(made.voters))
        node.boot.membership._change(random.Random(1))
    elif way == "returned":
        node.boot.membership._return(group, left, (1, 2, 3), 1)
    else:
        monkeypatch.setattr(made.workload, "topics", made.topics)
        node.boot.moves.start({})
        index = node.view.status(group).configuration_index
        start(node.boot.moves.plans._change(StartReplicaChange(group, wanted, (), index)),
              node.process.later)
    assert node.view.configuration(group).voters == wanted
    assert not made.atlas.may_lose(kept) and not made.atlas.may_lose(leader)
    assert made.atlas.may_lose(left)


def test_relaxed_nodes_write_although_a_checkpoint_is_always_due():
    """Unsynced bytes make the next checkpoint due as soon as one is written.

    Rounds that wait for an idle disk must be written all the same.
    """
    drawn = Parameters.draw(11)
    disk = dataclasses.replace(drawn.disk, flush_interval_ms=60_000, gathers=False,
                               checkpoint_bytes=1, checkpoint_growth_factor=0)
    made = running(11, disk=disk)
    acked = made.workload.acked
    stores = [node.boot.store for node in made.nodes.values()]
    before = [store.checkpoint_position for store in stores]
    made.run_for(5000)
    assert made.workload.acked > acked + 20
    assert all(store.checkpoint_position > position
               for store, position in zip(stores, before, strict=True))
    assert all(node.env.counters.crashes == 0 for node in made.nodes.values())


def test_a_node_behind_the_log_start_gets_a_snapshot_of_the_state():
    made = running(3, commands_kept=0, commands_per_second=20.0, snapshot_chunk_bytes=40)
    made._command_soon()
    away = made.nodes[made.parameters.nodes]
    away.crash(power=True)
    replica = made.state_checker.groups[0].replica(away.node)

    def is_compacted() -> bool:
        return any(node.view.leads(0) and node.boot.raft.status.of(0).first_index > replica.applied
                   for node in made.nodes.values())

    for _ in range(10):  # until there is enough for a checkpoint
        made.run_for(20_000)
        if is_compacted():
            break
    assert is_compacted()
    away.start()
    made.run_for(8_000)
    assert made.faults["snapshot-installed"] >= 1
    assert away.view.commands.version > 0
    finish(made)


def test_members_change_while_disks_rot():
    results = [simulation.run(dataclasses.replace(
        Parameters.draw(seed, groups=6, safety_ms=10_000),
        faults=("members", "bit-rot", "return", "misdirected", "rot-beside", "kill"),
        fault_interval_ms=300, fault_duration_ms=1500)) for seed in (2, 5, 8, 11, 17, 22)]
    assert [result.failure for result in results] == [""] * 6
    faults = sum((result.faults for result in results), Counter())
    event_counts = sum((result.event_counts for result in results), Counter())
    assert faults["bit-rot"] > 5 and faults["misdirected"] > 2
    assert event_counts["configuration_changed"] > 20 and event_counts["replica_repaired"] > 10


#: Bugs of snapshots for a node behind the log start, with many commands of which few are kept.
STATE_BUGS = {
    "applied-state-not-in-snapshot": Bug(
        "applied-state-not-in-snapshot",
        "node.replicas.snapshot_installer",
        "SnapshotInstaller.install",
        "self._adopt(snapshot.state)",
        "pass",
        "a snapshot moves the log and not the state",
        Seeds((3,)),
    ),
    "only-a-settled-leader-gives": Bug(
        "only-a-settled-leader-gives",
        "node.replicas.snapshot_source",
        "SnapshotSource._incarnation",
        "status.quarantined",
        "not self._core.status.has_applied_in_term(METADATA_GROUP)",
        "a leader that needs the vote of who needs its snapshot does not give it",
        Seeds((5,)),
    ),
    "snapshot-is-taken-while-it-is-encoded": BUGS["snapshot-is-taken-while-it-is-encoded"]._replace(
        proof=Seeds((15,))),
}
#: Commands per second, enough that some arrive while a thread encodes an image.
HURRIED = {"snapshot-is-taken-while-it-is-encoded": 150.0}
AWAY = ("partition-one", "kill", "power-loss", "isolate-leader", "crash-midway", "double-crash",
        "members", "return", "partition-halves", "pause")


def compacting(seed: int, commands_per_second: float = 20.0) -> Parameters:
    drawn = Parameters.draw(seed, groups=6, safety_ms=15_000)
    disk = dataclasses.replace(drawn.disk, checkpoint_bytes=4096, checkpoint_growth_factor=0)
    return dataclasses.replace(drawn, disk=disk, faults=AWAY, fault_interval_ms=300,
                               fault_duration_ms=1500,
                               commands_per_second=commands_per_second,
                               commands_kept=seed % 3)


@pytest.mark.parametrize("name", sorted(STATE_BUGS))
def test_planted_bug_of_snapshots_is_caught(name):
    bug, hurried = STATE_BUGS[name], [HURRIED[name]] if name in HURRIED else []
    for seed in (*bug.proof.pinned, *range(1, 60)):
        with planted(bug):
            found = simulation.run(compacting(seed, *hurried)).failure
        if found:
            assert not simulation.run(compacting(seed, *hurried)).failure, (
                "it fails without the bug"
            )
            return
    pytest.fail(f"{name} was not caught")


# ---- armed crashes and partial heals ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["crash-midway", "double-crash"])
def test_a_crash_that_comes_late_is_healed_after_it_came(kind):
    """The heal of an armed crash was scheduled when it was armed, so a node that crashed later
    stayed down permanently.
    """
    made = running(3, fault_duration_ms=1)
    made.nemesis.injector.is_running = True
    for _ in range(20):
        made.nemesis.cause(kind)
        made.run_for(500)
    assert made.faults[kind] >= 5
    assert sum(node.env.counters.crashes for node in made.nodes.values()) >= made.faults[kind]
    made.run_for(1000)
    assert all(node.is_up for node in made.nodes.values())
    finish(made)


def test_a_crash_that_does_not_come_is_not_counted():
    made = running(3)
    made.nemesis.cause("crash-midway")
    assert made.faults["crash-midway"] == 0


def test_a_disk_that_had_failed_when_the_faults_ended_is_noticed_later_and_its_node_comes_back():
    """The node was started again only during the phase of faults, and stayed down permanently."""
    made = running(3)
    node = made.nodes[1]
    node.disk.arm_sync_error(1)
    while not node.disk.filesystem.faults.sync_errors:
        made.run_for(1)
    node.disk.hang()
    made.heal()
    node.disk.release()
    made.run_for(5000)
    assert node.env.counters.crashes == 1 and node.is_up
    finish(made)


def test_who_stays_off_is_not_started_by_whoever_watches_it(monkeypatch):
    monkeypatch.setattr(partial_heal, "MODES", (partial_heal.OFF,))
    made = running(3)
    made.heal()
    node = made.nodes[made.minority.nodes[0]]
    node.restart_soon()
    made.run_for(5000)
    assert not node.alive
    made.minority.heal_rest()
    assert node.alive


@pytest.mark.parametrize("way", partial_heal.MODES)
def test_a_quorum_converges_beside_those_that_stay_ill(way, monkeypatch):
    monkeypatch.setattr(partial_heal, "MODES", (way,))
    made = running(3)
    live = made.heal()
    ill = made.minority.nodes
    assert len(ill) == 1 and made.minority.mode == way and len(live) == 2
    made.converge(live)
    node = made.nodes[ill[0]]
    assert node.alive == (way != partial_heal.OFF) and node.disk.hangs == (way == partial_heal.HUNG)
    assert made.network.is_blocked(ill[0], live[0]) == (
        way in (partial_heal.CUT, partial_heal.MUTE)
    )
    assert made.network.is_blocked(live[0], ill[0]) == (
        way in (partial_heal.CUT, partial_heal.DEAF)
    )
    made.minority.heal_rest()
    made.converge(made.minority.healthy_nodes)
    assert len(made.minority.healthy_nodes) == 3


def test_groups_that_have_wandered_get_their_voters_back_before_somebody_falls_ill():
    made = running(3)
    for node in made.nodes.values():
        for group in node.view.led_groups():
            node.boot.membership.set_members(group, (1 + group % 3,), ())
    made.run_for(3000)
    assert any(
        len(group.configuration().voters) == 1 for group in made.state_checker.groups.values()
    )
    made.heal()
    assert not made.minority.nodes, "each node is needed by some group"
    made.converge(made.minority.healthy_nodes)
    made._fail_minority()
    assert len(made.minority.nodes) == 1
    assert all(
        len(group.configuration().voters) == 3 for group in made.state_checker.groups.values()
    )
