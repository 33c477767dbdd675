"""Limits and sizes of storage, each with its reason; checked against each other once.

Contract.  Frozen; ``validate()`` runs where a config enters.  Nothing here changes the meaning of
bytes on disk: segments of any size are read by any configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.codec import layout
from multiraft.errors import ConfigError

#: No segment file larger than this is read at recovery: it is read whole, and a wrong size must not
#: allocate without bound.
SEGMENT_BYTES_LIMIT = 1 << 30

#: No checkpoint or index file larger than this is read, for the same reason.
ENVELOPE_BYTES_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Tunables of one node's storage."""

    #: Largest entry, header included.  Every segment can hold one.
    entry_bytes_max: int = layout.ENTRY_BYTES_MAX
    #: The first segment; each next one is twice as large, up to ``segment_bytes_max``.  Small, so
    #: that a quiet node owns little; twice an entry, so that one always fits.
    first_segment_bytes: int = 16 << 20
    #: Recovery reads a segment whole, so this is also a bound on its memory.
    segment_bytes_max: int = 64 << 20
    #: How far a small write zero-fills ahead, so that the next ones overwrite allocated blocks and
    #: their sync need not write metadata.
    zero_ahead_bytes: int = 512 << 10
    #: Rounds above this size do not zero-fill, and none while their mean is above it: large ones
    #: would write the same places a second time.
    zero_ahead_round_bytes_max: int = 32 << 10
    #: Recent entries of all groups kept in memory: what followers and tailing readers ask for.
    entry_cache_bytes_max: int = 256 << 20
    #: A checkpoint is due after this much of the journal: bounds what recovery has to replay.
    checkpoint_bytes: int = 64 << 20
    #: ... but not before the journal grew by this multiple of the last checkpoint's own size.
    checkpoint_growth_factor: int = 8
    #: The newest may be damaged: the one before it is kept.
    checkpoints_kept: int = 2
    #: A cold read reads through gaps (other groups' entries) up to this size: a second read costs
    #: about as much as these bytes.
    read_gap_bytes_max: int = 64 << 10

    def validate(self) -> "StorageConfig":
        """Return the configuration.  Raise ``ConfigError`` naming both settings when two contradict
        each other."""
        smallest = layout.SEGMENT_HEADER_BYTES + self.entry_bytes_max
        self._require(self.entry_bytes_max <= layout.ENTRY_BYTES_MAX,
                      f"entry_bytes_max={self.entry_bytes_max} exceeds the format's "
                      f"{layout.ENTRY_BYTES_MAX}")
        self._require(smallest <= self.first_segment_bytes,
                      f"first_segment_bytes={self.first_segment_bytes} cannot hold an entry of "
                      f"entry_bytes_max={self.entry_bytes_max}")
        self._require(self.first_segment_bytes <= self.segment_bytes_max,
                      f"first_segment_bytes={self.first_segment_bytes} exceeds segment_bytes_max="
                      f"{self.segment_bytes_max}")
        self._require(self.segment_bytes_max <= SEGMENT_BYTES_LIMIT,
                      f"segment_bytes_max={self.segment_bytes_max} exceeds the limit of "
                      f"{SEGMENT_BYTES_LIMIT}")
        for name in ("first_segment_bytes", "segment_bytes_max"):
            self._require(getattr(self, name) % layout.ENTRY_ALIGNMENT == 0,
                          f"{name}={getattr(self, name)} is not a multiple of "
                          f"{layout.ENTRY_ALIGNMENT}")
        self._require(self.checkpoints_kept >= 1, f"checkpoints_kept={self.checkpoints_kept} must "
                      "be at least 1")
        return self

    @staticmethod
    def _require(condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(message)
