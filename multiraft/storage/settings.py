"""Storage settings of an operator: the table [storage] of ``node.toml``.

Contract.  Frozen; ``validate()`` runs where it enters.  Sizes of files are not here: they are the
format's (``config.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.errors import ConfigError

FSYNC, RELAXED = "fsync", "relaxed"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The table [storage] of ``node.toml``: durability, reserved space and scrub of the disk."""

    #: ``fsync``: what is acknowledged is on the disk.  ``relaxed``: records are in the operating
    #: system's hands, and on the disk after ``flush_interval_ms``; term, vote, membership and
    #: metadata are still synced before they count.
    durability: str = FSYNC
    #: With ``relaxed``, how long records wait for their sync: a few times what a sync takes on a
    #: slow disk, and as much as a power loss may take back.
    flush_interval_ms: int = 50
    #: Kept free for everything but records.  Two segments of the largest size and a checkpoint; 0 =
    #: no reserve, and a full disk stops the node.
    reserved_bytes: int = 192 << 20
    #: Everything is read and checked once in so many days: damage on two replicas of one entry
    #: within a week is unlikely, and a terabyte a week is 2 MB/s.  0 = never.
    scrub_interval_days: int = 7
    #: A scrub that would have to be faster takes longer: a tenth of what a slow disk reads.
    scrub_bytes_per_second: int = 16 << 20
    #: Reads and writes of the cleaner, which copies records out of segments with few live bytes:
    #: a tenth of what a slow disk does.  0 = it copies nothing until an operator
    #: resumes it with a rate.
    cleaner_bytes_per_second: int = 16 << 20

    def validate(self) -> StorageSettings:
        """Return the settings. Raise ``ConfigError`` for an unknown durability, a flush interval
        out of range, a scrub interval without a rate, or a negative rate of the cleaner."""
        if self.durability not in (FSYNC, RELAXED):
            raise ConfigError(f"storage.durability={self.durability!r} must be {FSYNC!r} or "
                              f"{RELAXED!r}")
        if self.durability == RELAXED and not 0 < self.flush_interval_ms <= 10_000:
            raise ConfigError(f"storage.flush_interval_ms={self.flush_interval_ms} must be from 1 "
                              "to 10000")
        if self.scrub_interval_days and not self.scrub_bytes_per_second:
            raise ConfigError("storage.scrub_bytes_per_second=0 contradicts "
                              f"scrub_interval_days={self.scrub_interval_days}")
        if self.cleaner_bytes_per_second < 0:
            raise ConfigError(f"storage.cleaner_bytes_per_second={self.cleaner_bytes_per_second} "
                              "must not be negative")
        return self
