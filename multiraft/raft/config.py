"""Limits and intervals of consensus, each with its reason; checked against each other once.

Contract.  Frozen; ``validate()`` runs where a config enters, inside it is assumed.  Nothing here
changes bytes on disk (that is ``codec/layout.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.codec import layout
from multiraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Tunables of one node's MultiRaft."""

    #: A lease lives this long after the asker *sent* its question.  Four questions fit into it, so
    #: three may be lost; failover costs one lease plus one election.
    lease_ms: int = 600
    #: One question per node pair and interval: 4 per lease.
    liveness_interval_ms: int = 150
    #: Followers of a lost leader campaign at random within this spread: a thousand groups lost at
    #: once are a thousand campaigns in a third of a second, and two candidates rarely collide.
    election_spread_ms: int = 300
    #: A campaign without an answer is repeated after this plus a random spread.
    election_retry_ms: int = 400
    #: After this long without progress a leader asks again from the last known match.
    retransmit_ms: int = 500
    #: A commit advance rides on the next append; without one it is announced after this.
    commit_notice_ms: int = 25
    #: A leadership transfer that has not happened by then is given up and the group accepts appends
    #: again (thesis 3.10: one election timeout).
    transfer_timeout_ms: int = 1000
    #: Unacknowledged bytes per peer and group: covers a round trip and an fsync at full speed.
    peer_window_bytes: int = 16 << 20
    #: Entries of one group in one peer frame; the rest goes with the next round.
    append_bytes_max: int = 4 << 20
    #: As ``append_bytes_max``, for what is committed already, of which a member that was away needs
    #: much: in pieces small enough to leave the appends of others their turn.
    catch_up_append_bytes: int = 256 << 10
    #: As ``peer_window_bytes``, for the same: one piece on the way at a time, which is 150 MB per
    #: second where an answer takes 1.7 ms with its sync (``make bench-node``).  Where nodes are
    #: farther apart, more on the way is faster.
    catch_up_window_bytes: int = 256 << 10
    #: Bytes of one peer frame: several groups' appends, at least one entry of the largest size.
    frame_bytes_max: int = 32 << 20
    #: Proposed but uncommitted bytes of a group before appends are refused with QueueFull.
    uncommitted_bytes_max: int = 64 << 20
    #: Proposed but uncommitted entries of a group, for the same reason.
    uncommitted_entries_max: int = 1 << 16
    #: A message may raise a replica's term by at most this: terms grow by one per election, and one
    #: forged or corrupt number must not use up a group's terms.  A million elections take days.
    term_jump_max: int = 1 << 20
    #: Entries that a learner may lack when it is made a voter: what is on the way under load.  A
    #: joint majority that waits for more would stop the group (thesis 4.2.1).
    promotion_lag_entries_max: int = 1024
    #: A replica without a leader that may not campaign (a learner, or one that was removed and does
    #: not know) asks what became of its group this often: nobody waits for it.
    bystander_retry_ms: int = 2000
    #: Linearizable reads of one group that wait for their confirmation.
    reads_waiting_max: int = 4096
    #: Members may have lost what they acknowledged (``durability = relaxed``, set by it): a leader
    #: believes one that says so and sends it again, instead of waiting for what will not come.
    members_may_forget: bool = False
    #: Groups that are re-examined in one round after a node was lost or came back.
    reexamine_groups_max: int = 256
    #: Entries of the metadata group that are handed out to be applied in one round: each may place
    #: or forget the 10,000 partitions of a topic, and a node that was away gets thousands at once.
    commands_per_round_max: int = 4

    def validate(self, entry_bytes_max: int = layout.ENTRY_BYTES_MAX) -> "RaftConfig":
        """Return this, checked for entries of up to ``entry_bytes_max`` framed bytes.  Raises
        ``ConfigError`` naming both settings when two contradict each other."""
        self._require(self.liveness_interval_ms * 3 <= self.lease_ms,
                      f"lease_ms={self.lease_ms} must hold three liveness_interval_ms="
                      f"{self.liveness_interval_ms}")
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
        self._require(self.commands_per_round_max >= 1,
                      f"commands_per_round_max={self.commands_per_round_max} must be at least 1")
        self._require(self.peer_window_bytes <= self.uncommitted_bytes_max,
                      f"peer_window_bytes={self.peer_window_bytes} exceeds uncommitted_bytes_max="
                      f"{self.uncommitted_bytes_max}")
        return self

    @staticmethod
    def _require(condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(message)
