"""The limits of one node, each with its reason, checked against each other once.

Contract. Frozen. ``validate`` runs when a configuration is loaded, ``validate_with`` compares with
the limits of consensus and storage; other code relies on both. A request that reaches a limit gets
a typed error that states limit and value, or is not read until there is capacity: nothing is
unbounded. ``docs/limits.md`` is generated from the comments here.
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

#: Partitions in one reply about topics: its header has room for so many.
METADATA_ROWS_MAX = 50_000
#: Range of ``retention_check_interval_ms``: passes that overlap would compete with requests, and
#: after an hour the clocks in the logs would be too far apart.
PASS_INTERVAL_MS_MIN, PASS_INTERVAL_MS_MAX = 100, 3_600_000
#: Largest ``raft_log_bytes_kept``: of small batches, so many bytes take 10 GB of memory.
RAFT_LOG_BYTES_KEPT_MAX = 64 << 30
#: Requests that run outside the loop, of all connections: each holds a task and its reply.
TASKS_MAX = 4096
#: Header of a reply to a fetch: 30 bytes for each of the partitions that fit into a request.
FETCH_HEADER_BYTES = 512 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """The table [limits] of ``node.toml``."""

    #: Client connections, of the native port and Kafka's together: each costs a socket, a task and
    #: up to two buffers.  Lowered at start to what the system's limit of open files leaves; more
    #: are closed at once.
    connections_max: int = 4096
    #: Connections of those from one address, of both ports together: a host that leaks connections
    #: leaves some for others.
    connections_per_address_max: int = 1024
    #: Connections to the peer port, authenticated or not: up to five of each node of the cluster,
    #: and more for those that are refused.
    peer_connections_max: int = 512
    #: Unanswered requests of one connection; more are not read (backpressure).
    requests_in_flight_max: int = 256
    #: Requests of one connection that wait in tasks of their own: for the metadata leader, until a
    #: change is applied, or for a majority to confirm a leader. More are not read. A port has 1,024
    #: tasks, of which no connection may take most.
    connection_tasks_max: int = 64
    #: Requests that this node has with the metadata leader for Kafka's clients: to create topics,
    #: to change settings, to grant identities. More are refused, to be repeated: at some
    #: milliseconds each, the last one waits for a second.
    passed_on_requests_max: int = 256
    #: Unanswered requests of all connections, long polls included, at about 1 KB each; more are
    #: refused before any work is done.
    node_requests_in_flight_max: int = 1 << 16
    #: Bytes of unanswered appends of one connection; more are not read. With one more frame less
    #: than ``raft.uncommitted_bytes_max``: one producer alone waits, and is never refused, which
    #: would change the order of its records if it has no identity.
    connection_bytes_in_flight_max: int = 32 << 20
    #: The same of all connections, frames that are still arriving included: large frames wait
    #: unread for memory, appends beyond it are refused before any work is done.
    node_bytes_in_flight_max: int = 512 << 20
    #: One client frame: two batches of the largest size, slightly less with headers.
    frame_bytes_max: int = 16 << 20
    #: A frame that has begun to arrive must be complete by then: 0.3 MB/s for the largest. Slower
    #: connections would hold memory that others wait for.
    frame_timeout_ms: int = 60_000
    #: A connection without open requests that sends nothing for so long is closed; clients connect
    #: again when they need to.
    idle_timeout_ms: int = 600_000
    #: A connection is closed when the client's kernel takes no byte of its replies for so long.
    write_timeout_ms: int = 30_000
    #: Bytes of replies that wait for a client; above it the connection is closed.
    connection_send_buffer_bytes_max: int = 64 << 20
    #: Bytes of replies of one connection that wait for the client, or behind a reply to an earlier
    #: request of Kafka's protocol, with what the requests in flight there may still return; more
    #: requests are not read. With the reply to one fetch it stays below the limit above: no client
    #: is disconnected for requests that it sent ahead.
    connection_answer_bytes_max: int = 32 << 20
    #: The same of all connections; above it fetches are refused before any work is done.
    node_send_buffer_bytes_max: int = 512 << 20
    #: Bytes of frames that wait for a peer; above it the connection is closed, and the peer probed
    #: again.
    peer_send_buffer_bytes_max: int = 128 << 20
    #: Bytes in the reply to one fetch, whatever the client requests: with one more batch of the
    #: largest size it fits into a frame.
    fetch_bytes_max: int = 7 << 20
    #: Copies sent to peers under repair, in bytes per second for all of them: a tenth of the
    #: bandwidth of a modest network, so that appends keep their share.
    repair_bytes_per_second: int = 32 << 20
    #: Bytes that a fetch reads on the loop, if the page cache has them: copying and verifying them
    #: takes 0.1 ms, about as long as a switch to a thread and back.
    page_cache_read_bytes_max: int = 1 << 20
    #: Threads that read from disk: enough to keep the disk's queue busy, and few, because each
    #: makes the loop wait for the interpreter's lock.
    cold_readers_max: int = 4
    #: Bytes that are read from disk at a time: four fetches of the largest size.
    cold_read_bytes_max: int = 64 << 20
    #: A client that ended its side of a connection receives the replies to its requests that are
    #: ready, and read, by then: slightly longer than an append may take.
    half_closed_timeout_ms: int = 65_000
    #: Metadata commands that stay in the log after a checkpoint covers them, as long as they stand
    #: in the ``node_raft_log_bytes_newest`` of the journal: what a node needs that was absent for
    #: minutes. A node that was absent longer receives the state itself.
    metadata_entries_kept: int = 10_000
    #: So many more while a learner needs them, or a node that downloads the state will: an hour of
    #: 300 commands a second, at 16 bytes of memory each.
    metadata_catch_up_entries_max: int = 1_000_000
    #: Rows (of requests, answers, tables) that are processed in one turn of the loop, all
    #: connections together: some milliseconds, so that appends and leases are not delayed. Further
    #: rows take further turns.
    turn_rows_max: int = 256
    #: The same of one connection, whose requests are small and arrive together: other connections
    #: are served before the rest of them.
    connection_turn_rows_max: int = 512
    #: Partitions of the topics in one metadata request: as many fit into a reply.
    metadata_rows_max: int = METADATA_ROWS_MAX
    #: A long poll waits at most this long.
    fetch_wait_ms_max: int = 30_000
    #: An append is answered as ambiguous after at most this long.
    append_timeout_ms_max: int = 60_000
    #: A connection without a complete hello by then, TLS included, is closed.
    hello_timeout_ms: int = 5_000
    #: Largest size of the pool: each group takes memory on its members, and an election when its
    #: leader is lost.
    groups_max: int = POOL_SIZE_MAX
    #: Topics of the cluster, at about 500 bytes of memory on each node.
    topics_max: int = 1 << 20
    #: Partitions of the cluster, for the same reason.
    partitions_max: int = 1 << 21
    #: Partitions of one topic: as many as fit into a reply about it.
    partitions_per_topic_max: int = PARTITIONS_PER_TOPIC_MAX
    #: An open transaction of a sink is aborted after so long, because readers wait for its staged
    #: batches. It must be longer than any batch job: a job that takes longer is started
    #: again, and never completes.
    transaction_timeout_ms: int = 3_600_000
    #: The round loop must answer the liveness thread's nudge within this, or the node's leases end.
    loop_stall_ms_max: int = 400
    #: The oldest write in flight must be younger than this, or the node's leases end.
    disk_stall_ms_max: int = 1_500
    #: A group led here whose oldest append has not been committed for so long is resigned: several
    #: elections, and well below the time that clients wait for an append.
    group_stall_ms_max: int = 3_000
    #: The disk is probed after this long without a write, so that a hung disk is detected while
    #: idle.
    disk_probe_interval_ms: int = 500
    #: Longest time for the transfer of leadership at shutdown.
    shutdown_timeout_ms: int = 5_000
    #: Interval of the passes of retention: a record leaves its partition up to so much later than
    #: its limits say. A pass costs what there is to remove, so a shorter one costs little. One
    #: begins earlier when the node has written 256 MiB since the last one.
    retention_check_interval_ms: int = 10_000
    #: Bytes of the Raft log that a group keeps for a member that is up and lags: catching up by
    #: entries is cheaper than by a snapshot, and each entry takes 16 bytes of memory.  Records
    #: below stay readable.
    raft_log_bytes_kept: int = 1 << 30
    #: Bytes of the Raft log that a group keeps for members that are down: a node that restarts
    #: continues by entries instead of a snapshot of each group.
    raft_log_bytes_newest: int = 16 << 20
    #: Entries of all groups that stand before so many newest bytes of the journal are not kept for
    #: members that are down: what an idle group keeps holds the segment that it is in.
    node_raft_log_bytes_newest: int = 256 << 20
    #: A new producer's id is 1 to so many above the previous one, at random, so that no id is hit
    #: by accident. Not more than 65,536.
    producer_id_gap_max: int = PRODUCER_IDS_PER_BLOCK_MAX

    def validate(self) -> "Limits":
        """Return these limits. Raises ``ConfigError`` if a limit is out of its range, or two limits
        contradict each other."""
        for item in fields(self):
            if getattr(self, item.name) < 1 and item.name not in _MAY_BE_ZERO:
                raise ConfigError(f"{item.name}={getattr(self, item.name)} must be at least 1")
        if not PASS_INTERVAL_MS_MIN <= self.retention_check_interval_ms <= PASS_INTERVAL_MS_MAX:
            raise ConfigError(f"retention_check_interval_ms={self.retention_check_interval_ms} "
                              f"must be from {PASS_INTERVAL_MS_MIN} to {PASS_INTERVAL_MS_MAX}")
        if self.raft_log_bytes_kept > RAFT_LOG_BYTES_KEPT_MAX:
            raise ConfigError(f"raft_log_bytes_kept={self.raft_log_bytes_kept} exceeds "
                              f"{RAFT_LOG_BYTES_KEPT_MAX}")
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
                           ("producer_id_gap_max", PRODUCER_IDS_PER_BLOCK_MAX),
                           ("metadata_rows_max", METADATA_ROWS_MAX)):
            if getattr(self, name) > most:
                raise ConfigError(f"{name}={getattr(self, name)} exceeds what there can be, {most}")
        return self

    def validate_with(self, raft: RaftConfig, storage: StorageConfig) -> None:
        """Compare with the limits of consensus and storage. Raises ``ConfigError`` if a request
        could be accepted that cannot be replicated or stored."""
        for smaller, value, larger, bound in (
                ("limits.frame_bytes_max", self.frame_bytes_max,
                 "raft.peer_window_bytes", raft.peer_window_bytes),
                ("raft.peer_window_bytes", raft.peer_window_bytes,
                 "storage.segment_bytes_max", storage.segment_bytes_max),
                ("storage.entry_bytes_max", storage.entry_bytes_max,
                 "raft.uncommitted_bytes_max", raft.uncommitted_bytes_max),
                ("raft.frame_bytes_max", raft.frame_bytes_max,
                 "limits.peer_send_buffer_bytes_max", self.peer_send_buffer_bytes_max)):
            if value > bound:
                raise ConfigError(f"{smaller}={value} exceeds {larger}={bound}")


#: Limits that may be 0, which means "not at all".
_MAY_BE_ZERO = ("page_cache_read_bytes_max", "metadata_entries_kept",
                "metadata_catch_up_entries_max", "raft_log_bytes_newest",
                "node_raft_log_bytes_newest")
#: (smaller, larger): pairs of limits that must keep this order.
_ORDER = (
    ("connections_per_address_max", "connections_max"),
    ("requests_in_flight_max", "node_requests_in_flight_max"),
    ("connection_tasks_max", "requests_in_flight_max"),
    ("frame_bytes_max", "connection_bytes_in_flight_max"),
    ("connection_bytes_in_flight_max", "node_bytes_in_flight_max"),
    ("frame_bytes_max", "connection_send_buffer_bytes_max"),
    ("connection_answer_bytes_max", "connection_send_buffer_bytes_max"),
    ("connection_send_buffer_bytes_max", "node_send_buffer_bytes_max"),
    ("partitions_per_topic_max", "partitions_max"),
    ("partitions_per_topic_max", "metadata_rows_max"),
    ("raft_log_bytes_newest", "raft_log_bytes_kept"),
    ("raft_log_bytes_newest", "node_raft_log_bytes_newest"),
)
