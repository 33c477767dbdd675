"""Limits and intervals of consensus, with the reason for each.

Contract.  Frozen; ``validate()`` runs where a configuration enters, and the core assumes a valid
one.  Nothing here changes bytes on disk (those are in ``codec/layout.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.codec import layout
from multiraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Tunables of one node's ``MultiRaft``."""

    #: Support of a node expires this long after that node *sent* its heartbeat.  Four heartbeats
    #: fit into a lease, so three may be lost; a failover takes one lease and one election.
    lease_ms: int = 600
    #: One heartbeat per node pair and interval: 4 per lease.
    heartbeat_interval_ms: int = 150
    #: Followers of a lost leader campaign at random within this spread: a thousand groups lost at
    #: once are a thousand campaigns in a third of a second, and two candidates rarely collide.
    election_jitter_ms: int = 300
    #: A campaign without a result is repeated after this plus a random spread.
    election_retry_ms: int = 400
    #: After this long without progress a leader probes again from the last known match.
    retransmit_ms: int = 500
    #: A commit index that no append has carried for this long is sent alone.
    commit_notice_ms: int = 25
    #: A leadership transfer ends after this long, and the group accepts appends again (thesis 3.10:
    #: one election timeout).
    transfer_timeout_ms: int = 1000
    #: Unacknowledged bytes per peer and group: covers a round trip and an fsync at full speed.
    peer_window_bytes: int = 16 << 20
    #: Bytes of one group's entries in one peer frame; more follow in the next round.
    append_bytes_max: int = 4 << 20
    #: As ``append_bytes_max`` for committed entries, of which a member that was away needs many.
    #: Small pieces let the appends of other groups be sent between them.
    catch_up_append_bytes: int = 256 << 10
    #: As ``peer_window_bytes`` for committed entries.  One piece at a time is in flight, which is
    #: 150 MB per second where a reply takes 1.7 ms with its sync (``make bench-node``).  More in
    #: flight is faster where nodes are farther apart.
    catch_up_window_bytes: int = 256 << 10
    #: Bytes of one peer frame: appends of several groups, at least one entry of the largest size.
    frame_bytes_max: int = 32 << 20
    #: Proposed but uncommitted bytes of a group before appends are refused with QueueFull.
    uncommitted_bytes_max: int = 64 << 20
    #: Proposed but uncommitted entries of a group, for the same reason.
    uncommitted_entries_max: int = 1 << 16
    #: A message may raise a replica's term by at most this: terms grow by one per election, and one
    #: forged or corrupt number must not use up a group's terms.  A million elections take days.
    term_jump_max: int = 1 << 20
    #: Entries that a learner may lack when it becomes a voter: about what is in flight under load.
    #: A joint majority that waits for more would stop the group (thesis 4.2.1).
    promotion_lag_entries_max: int = 1024
    #: Interval at which a non-candidate (a learner, or a replica that was removed unnoticed)
    #: without a leader asks what became of its group.  It is long, because no client waits for such
    #: a replica.
    non_candidate_retry_ms: int = 2000
    #: Linearizable reads of one group that wait for their confirmation.
    pending_reads_max: int = 4096
    #: Members may have lost what they acknowledged (set by ``durability = relaxed``).  A leader
    #: then accepts a member's report of lost entries and sends them again, instead of waiting
    #: without end.
    accept_lost_entries: bool = False
    #: Groups that are re-examined in one round after a node was lost or came back.
    liveness_checks_per_round_max: int = 256
    #: Entries of the metadata group that are emitted for applying in one round.  Each may place or
    #: delete the 10,000 partitions of a topic, and a node that was away receives thousands at once.
    metadata_commands_per_round_max: int = 4

    def validate(self, entry_bytes_max: int = layout.ENTRY_BYTES_MAX) -> "RaftConfig":
        """Return this configuration, checked for entries of up to ``entry_bytes_max`` framed bytes.

        Raises ``ConfigError``, which names both settings that contradict each other."""
        self._require(self.heartbeat_interval_ms * 3 <= self.lease_ms,
                      f"lease_ms={self.lease_ms} must hold three heartbeat_interval_ms="
                      f"{self.heartbeat_interval_ms}")
        self._require(layout.ENTRY_BYTES_MAX <= self.frame_bytes_max // 2,
                      f"frame_bytes_max={self.frame_bytes_max} must hold two entries of "
                      f"{layout.ENTRY_BYTES_MAX} bytes")
        self._require(self.append_bytes_max <= self.frame_bytes_max,
                      f"append_bytes_max={self.append_bytes_max} exceeds frame_bytes_max="
                      f"{self.frame_bytes_max}")
        self._require(self.append_bytes_max <= self.peer_window_bytes,
                      f"append_bytes_max={self.append_bytes_max} exceeds peer_window_bytes="
                      f"{self.peer_window_bytes}")
        self._require(self.catch_up_append_bytes <= self.catch_up_window_bytes,
                      f"catch_up_append_bytes={self.catch_up_append_bytes} exceeds "
                      f"catch_up_window_bytes={self.catch_up_window_bytes}")
        self._require(self.catch_up_window_bytes <= self.peer_window_bytes,
                      f"catch_up_window_bytes={self.catch_up_window_bytes} exceeds "
                      f"peer_window_bytes={self.peer_window_bytes}")
        self._require(entry_bytes_max <= self.uncommitted_bytes_max,
                      f"uncommitted_bytes_max={self.uncommitted_bytes_max} must hold an entry of "
                      f"{entry_bytes_max} bytes, the largest there is: it would be refused for "
                      f"ever, as if others were in its way")
        self._require(self.metadata_commands_per_round_max >= 1,
                      f"metadata_commands_per_round_max={self.metadata_commands_per_round_max} "
                      f"must be at least 1")
        self._require(self.peer_window_bytes <= self.uncommitted_bytes_max,
                      f"peer_window_bytes={self.peer_window_bytes} exceeds uncommitted_bytes_max="
                      f"{self.uncommitted_bytes_max}")
        return self

    @staticmethod
    def _require(condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(message)
