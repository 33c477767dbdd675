"""Bounds of one node, each with its reason; checked against each other once.

Contract.  Frozen; ``validate`` runs where a configuration enters, ``validate_with`` compares with
the limits of consensus and storage; inside it is assumed.  What reaches a bound is answered by a
typed error that states limit and value, or not read until there is room: nothing is unbounded.
``docs/limits.md`` is made from the comments here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from multiraft.codec import layout
from multiraft.errors import ConfigError
from multiraft.raft.config import RaftConfig
from multiraft.storage.config import StorageConfig
from node.metadata.commands import PARTITIONS_PER_TOPIC_MAX, PRODUCER_IDS_PER_BLOCK_MAX
from node.metadata.state_machine import PARTITIONS_MAX, TOPICS_MAX
from placement import POOL_SIZE_MAX

#: Partitions that one answer about topics can name: its header has room for so many.
METADATA_ROWS_MAX = 50_000
#: Header of an answer to a fetch: 30 bytes for each of the partitions that fit into a request.
FETCH_HEADER_BYTES = 512 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """The table [limits]."""

    #: Client connections: each costs a socket, a task and up to two buffers.  Lowered at start to
    #: what the system's limit of open files leaves; more are closed at once.
    connections_max: int = 4096
    #: Of those, from one address: a client that leaks connections leaves room for others.
    connections_per_address_max: int = 1024
    #: Connections to the peer port, proven or not: two per node of the cluster, and room for many
    #: that have to be turned away.
    peer_connections_max: int = 512
    #: Requests of one connection that are not answered yet; more are not read (backpressure).
    requests_in_flight_max: int = 256
    #: Requests of all connections that are not answered yet, long polls included, at about 1 KB
    #: each; more are refused before any work is done.
    node_requests_in_flight_max: int = 1 << 16
    #: Bytes of appends of one connection that are not answered yet; more are not read.
    connection_bytes_in_flight_max: int = 64 << 20
    #: The same of all connections, frames that are still arriving included: large frames wait for
    #: room unread, appends beyond it are refused before any work is done.
    node_bytes_in_flight_max: int = 512 << 20
    #: One client frame: two batches of the largest size, with headers a little less.
    frame_bytes_max: int = 16 << 20
    #: A frame that has begun to arrive is complete by then: 0.3 MB/s for the largest.  Slower
    #: connections would hold memory that others wait for.
    frame_timeout_ms: int = 60_000
    #: A connection that has nothing to answer and says nothing for so long is closed; clients
    #: connect anew when they have something to say.
    idle_timeout_ms: int = 600_000
    #: Answers of which the client's kernel takes nothing for so long end the connection.
    answer_timeout_ms: int = 30_000
    #: Answers waiting for a client that does not read; then the connection is closed.
    outbox_bytes_max: int = 64 << 20
    #: The same of all connections; beyond it fetches are refused before any work is done.
    node_outbox_bytes_max: int = 512 << 20
    #: Frames waiting for a peer that does not read; then its connection is closed and probed anew.
    peer_outbox_bytes_max: int = 128 << 20
    #: Bytes answered to one fetch, whatever the client asks: with one more batch of the largest
    #: size it stays inside a frame.
    fetch_bytes_max: int = 7 << 20
    #: Copies sent to peers that repair, in bytes per second and all together: a tenth of what a
    #: modest network carries, so that appends keep their share.
    bulk_bytes_per_second: int = 32 << 20
    #: A fetch reads at most this much on the loop, of what the page cache has: copying and checking
    #: it takes 0.1 ms, about as long as a hop to a thread and back.
    resident_read_bytes_max: int = 1 << 20
    #: Threads that read what is not in memory: enough to keep a disk's queue busy, and few beside
    #: the loop, which each of them makes wait for the interpreter's lock.
    cold_readers_max: int = 4
    #: Bytes under way from disk at a time: four fetches of the largest size.
    cold_read_bytes_max: int = 64 << 20
    #: A client that ended its side of a connection gets the answers to what it had asked, if they
    #: are there, and taken, by then: a little more than an append may take.
    half_closed_ms_max: int = 65_000
    #: Metadata commands that stay in the log once a checkpoint holds what they did: what a node
    #: that was away for minutes needs.  One that was away longer gets the state itself.
    metadata_entries_kept: int = 10_000
    #: And so many more while a learner needs them, or whoever is fetching the state will: an hour
    #: of 300 commands a second, at 16 bytes of memory each.
    metadata_entries_held_max: int = 1_000_000
    #: Rows (of requests, answers, tables) that are worked on in one turn of the loop, all
    #: connections together: some milliseconds, so that appends and leases are not held up.  What is
    #: more is done in as many turns as it takes.
    turn_rows_max: int = 256
    #: The same of one connection, whose requests are small and arrive together: the others are
    #: served before the rest of them.
    connection_turn_rows_max: int = 512
    #: Partitions of the topics that one request for metadata names: what an answer has room for.
    metadata_rows_max: int = METADATA_ROWS_MAX
    #: A long poll waits at most this long.
    fetch_wait_ms_max: int = 30_000
    #: An append is answered as ambiguous after at most this long.
    append_timeout_ms_max: int = 60_000
    #: A connection that has not said hello by then, TLS included, is closed.
    hello_timeout_ms: int = 5_000
    #: Groups that the pool may grow to: each takes memory on its members, and an election when its
    #: leader is lost.
    groups_max: int = POOL_SIZE_MAX
    #: Topics of the cluster, at about 500 bytes of memory on each node.
    topics_max: int = 1 << 20
    #: Partitions of the cluster, for the same reason.
    partitions_max: int = 1 << 21
    #: Partitions of one topic: what an answer about it can name.
    partitions_per_topic_max: int = PARTITIONS_PER_TOPIC_MAX
    #: A run of a sink that is open for so long is given up, because readers wait for what it has
    #: staged.  Longer than any batch takes: one that takes longer is begun again, and never ends.
    run_timeout_ms: int = 3_600_000
    #: The round loop answers the liveness thread's nudge within this, or leases end.
    loop_stall_ms_max: int = 400
    #: The oldest write in flight is younger than this, or leases end.
    disk_stall_ms_max: int = 1_500
    #: A group led here whose oldest append has not been committed for so long is handed to others:
    #: several elections, well below what clients wait for an append.
    group_stall_ms_max: int = 3_000
    #: After this long without a write the disk is probed, so that a hung disk is noticed idle too.
    disk_probe_ms: int = 500
    #: Handing over leadership at shutdown takes at most this long.
    shutdown_ms_max: int = 5_000
    #: A new producer's id lies 1 to so many above the one before, at random, so that nobody hits
    #: upon it by accident.  Not more than 65,536.
    producer_id_block: int = PRODUCER_IDS_PER_BLOCK_MAX

    def validate(self) -> "Limits":
        """Raises ``ConfigError`` when two limits contradict each other."""
        for item in fields(self):
            if getattr(self, item.name) < 1 and item.name not in _MAY_BE_ZERO:
                raise ConfigError(f"{item.name}={getattr(self, item.name)} must be at least 1")
        if self.frame_bytes_max < 2 * layout.BATCH_BYTES_MAX:
            raise ConfigError(f"frame_bytes_max={self.frame_bytes_max} must hold two batches of "
                              f"{layout.BATCH_BYTES_MAX} bytes")
        largest_answer = self.fetch_bytes_max + layout.BATCH_BYTES_MAX + FETCH_HEADER_BYTES
        if largest_answer > self.frame_bytes_max:
            raise ConfigError(f"fetch_bytes_max={self.fetch_bytes_max} and one more batch of "
                              f"{layout.BATCH_BYTES_MAX} bytes do not fit into frame_bytes_max="
                              f"{self.frame_bytes_max}")
        for smaller, larger in _ORDER:
            if getattr(self, smaller) > getattr(self, larger):
                raise ConfigError(f"{smaller}={getattr(self, smaller)} exceeds {larger}="
                                  f"{getattr(self, larger)}")
        for name, most in (("groups_max", POOL_SIZE_MAX), ("topics_max", TOPICS_MAX),
                           ("partitions_max", PARTITIONS_MAX),
                           ("partitions_per_topic_max", PARTITIONS_PER_TOPIC_MAX),
                           ("producer_id_block", PRODUCER_IDS_PER_BLOCK_MAX),
                           ("metadata_rows_max", METADATA_ROWS_MAX)):
            if getattr(self, name) > most:
                raise ConfigError(f"{name}={getattr(self, name)} exceeds what there can be, {most}")
        return self

    def validate_with(self, raft: RaftConfig, storage: StorageConfig) -> None:
        """Raises ``ConfigError`` when what is accepted could not be replicated or stored."""
        for smaller, value, larger, bound in (
                ("limits.frame_bytes_max", self.frame_bytes_max,
                 "raft.peer_window_bytes", raft.peer_window_bytes),
                ("raft.peer_window_bytes", raft.peer_window_bytes,
                 "storage.segment_bytes_max", storage.segment_bytes_max),
                ("storage.entry_bytes_max", storage.entry_bytes_max,
                 "raft.uncommitted_bytes_max", raft.uncommitted_bytes_max),
                ("raft.frame_bytes_max", raft.frame_bytes_max,
                 "limits.peer_outbox_bytes_max", self.peer_outbox_bytes_max)):
            if value > bound:
                raise ConfigError(f"{smaller}={value} exceeds {larger}={bound}")


#: Zero means "not at all" there.
_MAY_BE_ZERO = ("resident_read_bytes_max", "metadata_entries_kept",
                "metadata_entries_held_max")
#: What may not be larger than what.
_ORDER = (
    ("connections_per_address_max", "connections_max"),
    ("requests_in_flight_max", "node_requests_in_flight_max"),
    ("frame_bytes_max", "connection_bytes_in_flight_max"),
    ("connection_bytes_in_flight_max", "node_bytes_in_flight_max"),
    ("frame_bytes_max", "outbox_bytes_max"),
    ("outbox_bytes_max", "node_outbox_bytes_max"),
    ("partitions_per_topic_max", "partitions_max"),
    ("partitions_per_topic_max", "metadata_rows_max"),
)
