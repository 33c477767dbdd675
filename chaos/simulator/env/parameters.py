"""Parameters of a simulation: sizes, limits, probabilities and rates, all drawn from the seed.

Contract.  ``Parameters.draw(seed)`` is a pure function of its arguments.  Limits are often absurdly
small, so that an edge (a full window, a new segment, a batch that does not fit) is the common case.

Theory.  Swarm testing (Groce et al., ISSTA 2012): a run with some faults switched off finds bugs
that a run with all of them on hides, because one fault masks another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

#: Every kind of fault that the nemesis can cause.  A run uses a random subset.
FAULT_KINDS = (
    "power-loss", "kill", "crash-midway", "cluster-power", "pause", "partition-one",
    "partition-halves", "partition-one-way", "clog", "disk-slow", "disconnect", "transfer",
    "double-crash", "isolate-leader", "crash-in-write", "bit-rot",
    "members", "return",
    "eio-write", "eio-sync", "disk-full", "disk-hung", "majorities-ring", "bridge", "client-cut",
    "channel-cut", "clock-drift", "misdirected", "rot-beside",
    "wipe", "topic-create", "topic-delete", "topic-recreate", "rot-checkpoint", "rot-header",
    "rot-identity", "eio-directory", "switch", "plan", "mover-crash", "older-copy",
    "stop", "topic-settings", "retention", "delete-records", "clock-shift",
    "topic-grow",
)

#: Kinds that need a workload with topics.
TOPIC_KINDS = frozenset(("topic-create", "topic-delete", "topic-recreate", "switch", "plan",
                         "topic-settings", "retention", "topic-grow"))
#: Kinds of runs in which records leave their partitions.
RETENTION_KINDS = frozenset(("retention", "delete-records", "clock-shift"))
#: Kind that runs with topics have, drawn from another random stream, and its probability.
GROWTH_KIND, GROWTH_ODDS = "topic-grow", 0.4
#: Kinds after which a new node replaces the struck one.
REPLACING = frozenset(("wipe", "rot-identity", "older-copy"))
#: Kinds that were added later.  A random stream of their own draws them, so that the draws of the
#: other kinds stay as they were for each seed.
LATER_KINDS = (TOPIC_KINDS - RETENTION_KINDS - {GROWTH_KIND}) | {
    "wipe", "rot-checkpoint", "rot-header", "rot-identity", "eio-directory", "mover-crash",
    "older-copy", "stop"}
LATER_ODDS = 0.33  # probability of each of ``LATER_KINDS``
#: Probability of ``retention``; then of each other kind of ``RETENTION_KINDS``.  Another random
#: stream draws them.
RETENTION_ODDS, DELETION_ODDS = 0.4, 0.6
#: Probability that groups with partitions are not compacted.
WHOLE_LOGS_ODDS = 0.1
#: Smallest checkpoint interval of runs with compaction: each checkpoint lets Raft starts rise.
CHECKPOINT_BYTES_MIN = 4 << 10

#: Minimum number of kinds in a run, ``LATER_KINDS`` and ``RETENTION_KINDS`` not counted.
KINDS_MIN = 8

#: Simulated time with faults, long enough for a seed to count (docs/simulator.md).
SAFETY_MS = 300_000


@dataclass(frozen=True, slots=True)
class NetworkParameters:
    """Probabilities per frame; times in microseconds."""

    delay_min_us: int
    delay_spread_us: int
    loss: float
    duplication: float
    item_loss: float
    reorder: float
    reorder_us: int


@dataclass(frozen=True, slots=True)
class DiskParameters:
    """Latency of writes, sizes of segments and caches, checkpoints."""

    write_min_us: int
    write_spread_us: int
    stall: float  # probability that a write takes stall_us longer
    stall_us: int
    first_segment_bytes: int
    segment_bytes_max: int
    zero_ahead_bytes: int
    entry_cache_bytes_max: int
    checkpoint_bytes: int
    checkpoint_growth_factor: int
    checkpoints_kept: int
    reserved_bytes: int  # disk space for votes, metadata and checkpoints on a full disk
    flush_interval_ms: int  # > 0: relaxed durability, records wait so long for their sync
    gathers: bool  # group commit; else one write is in flight and consensus waits for it


@dataclass(frozen=True, slots=True)
class RaftParameters:
    """Overrides of ``RaftConfig``."""

    append_bytes_max: int
    peer_window_bytes: int
    uncommitted_bytes_max: int
    uncommitted_entries_max: int
    reexamine_groups_max: int
    lease_ms: int
    retransmit_ms: int
    promotion_lag_entries_max: int


@dataclass(frozen=True, slots=True)
class CompactionParameters:
    """Limits of what stays in the Raft logs of groups with partitions, in bytes."""

    kept_bytes: int  # of a group, for members that are up
    newest_bytes: int  # of a group, for members that are down
    node_newest_bytes: int  # of the journal, for the same


@dataclass(frozen=True, slots=True)
class WorkloadParameters:
    """Number of clients, and their rates and sizes."""

    producers: int
    appends_per_second: float  # of all producers together, acknowledged
    burst_interval_ms: int  # mean time from one burst of appends to the next
    records_per_batch_max: int
    value_bytes_max: int
    in_flight_max: int
    skew: float  # 1 = uniform over groups, more = a few hot groups
    timeout_ms: int
    readers: int
    reads_per_second: float
    acks_leader: float  # share of producers with acks ``leader``


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of one run."""

    seed: int
    nodes: int
    replication_factor: int
    groups: int
    partitions_per_group: int
    safety_ms: int
    faults: tuple[str, ...]
    fault_interval_ms: int  # mean time from one fault to the next
    fault_duration_ms: int  # mean time until a fault is healed
    commands_per_second: float  # for group 0
    round_us: int  # from the first input of a node to the round that processes it
    commands_kept: int  # commands of group 0 that compaction leaves in the log
    snapshot_chunk_bytes: int
    control: bool  # control experiment: relaxed with power losses must lose acknowledged records
    network: NetworkParameters
    disk: DiskParameters
    raft: RaftParameters
    workload: WorkloadParameters
    #: None = a node of the cluster has a release without snapshots of groups with partitions, so
    #: that these groups are not compacted.
    compaction: CompactionParameters | None

    @property
    def has_retention(self) -> bool:
        """True if passes of retention run, clocks are in the logs, and clients delete records."""
        return not RETENTION_KINDS.isdisjoint(self.faults)

    @property
    def spares_power(self) -> bool:
        """True if a power loss strikes one node at a time, and then loses unsynced records.

        This holds with relaxed durability (docs/decisions/0010), but not in a control experiment.
        """
        return self.disk.flush_interval_ms > 0 and not self.control

    @classmethod
    def draw(cls, seed: int, nodes: int | None = None, groups: int | None = None,
             safety_ms: int | None = None) -> Parameters:
        """Draw all parameters from the seed.  An argument that is given replaces the drawn value
        and leaves all other draws as they are.
        """
        rng = random.Random(f"{seed}/parameters")
        durability_rng = random.Random(f"{seed}/parameters of durability")
        state_rng = random.Random(f"{seed}/parameters of group 0")
        pace_rng = random.Random(f"{seed}/parameters of pace")
        compaction_rng = random.Random(f"{seed}/parameters of compaction")
        drawn_nodes = rng.choice((3, 3, 3, 4, 5, 5))
        drawn_groups = rng.choice((8, 8, 12, 16, 16, 24, 32, 64))
        factor = rng.choice((3, 3, 3, 5))
        interval_ms = rng.choice((700, 1500, 3000, 5000))
        duration_ms = rng.choice((200, 800, 2000, 4000))
        node_count = nodes if nodes is not None else drawn_nodes
        compaction = _draw_compaction(compaction_rng)
        return cls(
            seed=seed,
            nodes=node_count,
            replication_factor=min(factor, node_count),
            groups=groups if groups is not None else drawn_groups,
            partitions_per_group=rng.choice((1, 1, 2, 3)),
            safety_ms=safety_ms if safety_ms is not None else SAFETY_MS,
            faults=_draw_growth(seed, _draw_retention(seed, _draw_later(
                seed, _draw_faults(rng)))),
            fault_interval_ms=max(interval_ms, duration_ms),  # about one at a time
            fault_duration_ms=duration_ms,
            commands_per_second=state_rng.choice((1.0, 2.0, 5.0)),
            round_us=pace_rng.choice((100, 1000, 3000)),
            commands_kept=state_rng.choice((0, 0, 1, 5, 50)),
            control=False,
            snapshot_chunk_bytes=state_rng.choice((100, 400, 1 << 20)),
            network=_draw_network(rng),
            disk=_draw_checkpoints(compaction_rng, compaction, replace(
                _draw_disk(rng), flush_interval_ms=durability_rng.choice(
                    (0, 0, 0, 0, 0, 0, 0, 20, 500)))),
            raft=_draw_raft(rng),
            workload=_draw_workload(rng, pace_rng),
            compaction=compaction,
        )

    def with_members(self) -> Parameters:
        """Return these parameters with frequent changes of members, and without bit rot."""
        kinds = tuple(kind for kind in self.faults if kind != "bit-rot")
        more = ("members", "members", "return") * max(1, len(kinds) // 2)
        return replace(self, faults=kinds + more,
                       fault_interval_ms=min(self.fault_interval_ms, 400))

    def describe(self) -> list[str]:
        """Return one line per field, for ``--trace`` and the report of a failure."""
        lines = []
        for field in fields(self):
            lines.append(f"{field.name:<22} {getattr(self, field.name)}")
        return lines


def _draw_faults(rng: random.Random) -> tuple[str, ...]:
    share = rng.choice((0.3, 0.6, 1.0))
    odds = {kind: rng.random() for kind in FAULT_KINDS
            if kind not in LATER_KINDS | RETENTION_KINDS | {GROWTH_KIND}}
    least = sorted(odds.values())[KINDS_MIN - 1]
    return tuple(kind for kind in odds if odds[kind] <= max(share, least))


def _draw_later(seed: int, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``chosen`` with the drawn kinds of ``LATER_KINDS``."""
    rng = random.Random(f"{seed}/parameters of lifetimes")
    later = [kind for kind in FAULT_KINDS if kind in LATER_KINDS and rng.random() < LATER_ODDS]
    if "plan" in later and "older-copy" in later:
        later.remove("older-copy")  # the metadata do not learn of replaced nodes
    if REPLACING & {*later} and "plan" in later:
        later.remove("plan")  # for the same reason
    return (*chosen, *later)


def _draw_retention(seed: int, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``chosen`` with the drawn kinds of ``RETENTION_KINDS``."""
    rng = random.Random(f"{seed}/parameters of retention")
    if rng.random() >= RETENTION_ODDS:
        return chosen
    others = [kind for kind in FAULT_KINDS
              if kind in RETENTION_KINDS and kind != "retention" and rng.random() < DELETION_ODDS]
    return (*chosen, "retention", *others)


def _draw_growth(seed: int, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``chosen``, in some runs with topics with the kind that adds partitions to them."""
    rng = random.Random(f"{seed}/parameters of growth")
    if TOPIC_KINDS.isdisjoint(chosen) or rng.random() >= GROWTH_ODDS:
        return chosen
    return (*chosen, GROWTH_KIND)


def _draw_network(rng: random.Random) -> NetworkParameters:
    def odds(*choices: float) -> float:
        return rng.choice(choices)

    return NetworkParameters(
        delay_min_us=rng.choice((50, 200, 1000)),
        delay_spread_us=rng.choice((100, 1000, 5000, 20_000)),
        loss=odds(0.0, 0.0, 0.005, 0.02, 0.05),
        duplication=odds(0.0, 0.0, 0.01, 0.05),
        item_loss=odds(0.0, 0.0, 0.02, 0.1),
        reorder=odds(0.0, 0.0, 0.02, 0.2),
        reorder_us=rng.choice((1000, 30_000, 400_000)),
    )


def _draw_disk(rng: random.Random) -> DiskParameters:
    first = rng.choice((8 << 10, 8 << 10, 32 << 10))
    return DiskParameters(
        write_min_us=rng.choice((50, 300, 2000)),
        write_spread_us=rng.choice((100, 2000, 10_000)),
        stall=rng.choice((0.0, 0.0, 0.002, 0.01)),
        stall_us=rng.choice((50_000, 300_000)),
        first_segment_bytes=first,
        segment_bytes_max=first * rng.choice((16, 32, 64)),
        zero_ahead_bytes=rng.choice((0, 1 << 10, 16 << 10)),
        entry_cache_bytes_max=rng.choice((0, 1 << 10, 8 << 10, 1 << 20)),
        checkpoint_bytes=rng.choice((16 << 10, 64 << 10, 256 << 10)),
        checkpoint_growth_factor=rng.choice((0, 2)),
        checkpoints_kept=rng.choice((1, 2)),
        reserved_bytes=rng.choice((64 << 10, 256 << 10)),
        flush_interval_ms=0,
        gathers=rng.random() < 0.6,
    )


def _draw_raft(rng: random.Random) -> RaftParameters:
    append = rng.choice((1, 200, 1000, 4000, 4 << 20))
    window = max(append, rng.choice((1, 300, 2000, 8000, 16 << 20)))
    uncommitted = max(window, rng.choice((6000, 20_000, 64 << 20)))
    return RaftParameters(
        append_bytes_max=append,
        peer_window_bytes=window,
        uncommitted_bytes_max=uncommitted,
        uncommitted_entries_max=rng.choice((2, 4, 16, 1 << 16)),
        reexamine_groups_max=rng.choice((4, 16, 256)),
        lease_ms=rng.choice((450, 600, 600, 2000)),
        retransmit_ms=rng.choice((100, 500, 500)),
        promotion_lag_entries_max=rng.choice((1, 4, 1024)),
    )


def _draw_compaction(rng: random.Random) -> CompactionParameters | None:
    """Draw limits that leave nothing, a few entries, or the whole log."""
    if rng.random() < WHOLE_LOGS_ODDS:
        return None
    return CompactionParameters(
        kept_bytes=rng.choice((0, 1 << 10, 8 << 10, 1 << 30)),
        newest_bytes=rng.choice((0, 0, 300, 4 << 10, 1 << 30)),
        node_newest_bytes=rng.choice((0, 16 << 10, 1 << 30)),
    )


def _draw_checkpoints(rng: random.Random, compaction: CompactionParameters | None,
                      disk: DiskParameters) -> DiskParameters:
    """Return the disk, in half of the runs with compaction with checkpoints after little."""
    if compaction is None or rng.random() < 0.5:
        return disk
    return replace(disk, checkpoint_bytes=CHECKPOINT_BYTES_MIN, checkpoint_growth_factor=0)


def _draw_workload(rng: random.Random, pace_rng: random.Random) -> WorkloadParameters:
    return WorkloadParameters(
        producers=rng.choice((2, 4, 8)),
        appends_per_second=rng.choice((11.0, 12.0, 13.0)),
        burst_interval_ms=pace_rng.choice((300, 1000, 2000)),
        records_per_batch_max=rng.choice((1, 3, 8)),
        value_bytes_max=rng.choice((0, 40, 300)),
        in_flight_max=rng.choice((1, 2, 5)),
        skew=rng.choice((1.0, 2.0, 8.0)),
        timeout_ms=rng.choice((300, 1000, 3000)),
        readers=rng.choice((1, 2, 4)),
        reads_per_second=rng.choice((3.0, 6.0)),
        acks_leader=rng.choice((0.0, 0.0, 0.3)),
    )
