"""The decision about one partition: which of its oldest batches leave it.

Contract.  Pure values and functions.  ``limits_of`` reads the limits of a topic from its settings.
A ``Removal`` takes the batches of a partition from its log start on, in any number of portions, and
ends at the first batch that stays.  What it found is the new log start, and the bytes that go.

Invariants.  The new log start is the end of a batch, at least the log start, and at most the high
watermark.  Of bytes and of records at least as many stay as the topic has to keep.

Theory.  A batch goes if one of the limits allows it: it was appended early enough, or what follows
it is enough records or enough bytes.  All three are monotone: if a batch stays by one of them, so
do all later ones.  So the first batch that stays by all of them ends the removal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from multiraft.partitions.retention_records import UNKNOWN_BYTES
from multiraft.settings.effective import is_internal
from multiraft.settings.registry import CLEANUP_POLICY, SETTINGS
from multiraft.settings.values import InvalidValue

#: Names of the settings that retention reads.
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
RETENTION_RECORDS = "retention.records"

#: A limit that is not set: everything stays.
UNLIMITED = -1

#: Share of a limit that has to go before a log start is proposed at once.  A partition at its limit
#: would cause a row of a LOG_START entry in each pass otherwise.
WORTH_SHARE = 16

#: Different settings whose limits are remembered; topics share few.
_REMEMBERED = 1024

Pairs = tuple[tuple[str, str], ...]


class Limits(NamedTuple):
    """Limits of a topic's partitions; ``UNLIMITED`` = none."""

    age_ms: int = UNLIMITED
    bytes: int = UNLIMITED
    records: int = UNLIMITED

    @property
    def is_unlimited(self) -> bool:
        """True if no record leaves the partition by retention."""
        return self == NO_LIMITS


NO_LIMITS = Limits()


@lru_cache(_REMEMBERED)
def limits_of(topic: str, own: Pairs, shared: Pairs, internal: Pairs = ()) -> Limits:
    """Return the limits of the topic of that name, by its own settings and those of the cluster.

    ``internal``: values of an internal topic that its own settings do not name; such a topic has no
    share in the cluster's defaults, which are meant for applications.  A topic whose
    ``cleanup.policy`` lacks ``delete`` has no limits.  O(settings)."""
    values = {**dict(internal if is_internal(topic) else shared), **dict(own)}
    if "delete" not in value_of(values, CLEANUP_POLICY).split(","):
        return NO_LIMITS
    return Limits(*(int(value_of(values, name))
                    for name in (RETENTION_MS, RETENTION_BYTES, RETENTION_RECORDS)))


def value_of(values: Mapping[str, str], name: str) -> str:
    """Return the value that holds: the default for one that a later release has set."""
    setting = SETTINGS[name]
    if name in values:
        try:
            return setting.type.read(values[name])
        except InvalidValue:
            pass
    return setting.default


class StoredBatch(NamedTuple):
    """One batch of a partition in the log of its group."""

    base_offset: int
    end_offset: int  # after the last record
    index: int  # type: ignore[assignment]  # of its entry
    size: int  # bytes of its payload, padded as it is stored


class Facts(NamedTuple):
    """A partition as its leader has applied it."""

    log_start: int
    end_offset: int  # the high watermark
    live_bytes: int  # ``UNKNOWN_BYTES``: nothing goes by bytes
    expired_index: int  # entries at or below it exceed the age; 0 = none


class Removal:
    """The batches that leave one partition, as far as they were examined.

    ``log_start`` is the new one, ``bytes`` what goes with it.  ``first_kept`` is the batch that
    ended the removal; None = not found yet, or everything goes."""

    __slots__ = ("log_start", "bytes", "first_kept", "_limits", "_facts")

    def __init__(self, limits: Limits, facts: Facts):
        self.log_start = facts.log_start
        self.bytes = 0
        self.first_kept: StoredBatch | None = None
        self._limits = limits
        self._facts = facts

    def take(self, batches: Iterable[StoredBatch]) -> bool:
        """Examine the next batches, oldest first.  Return True if they all go, so that the next
        ones have to be examined.  O(batches)."""
        for batch in batches:
            if not self._goes(batch):
                self.first_kept = batch
                return False
            self.log_start = batch.end_offset
            self.bytes += batch.size
        return True

    def _goes(self, batch: StoredBatch) -> bool:
        (age_ms, bytes_max, records_max), facts = self._limits, self._facts
        if batch.end_offset > facts.end_offset:
            return False
        if age_ms != UNLIMITED and batch.index <= facts.expired_index:
            return True
        if records_max != UNLIMITED and facts.end_offset - batch.end_offset >= records_max:
            return True
        return (bytes_max != UNLIMITED and facts.live_bytes != UNKNOWN_BYTES
                and facts.live_bytes - self.bytes - batch.size >= bytes_max)

    def skip_to(self, log_start: int) -> None:
        """Have all records below ``log_start`` go, which are in groups of earlier epochs."""
        self.log_start = log_start

    @property
    def records(self) -> int:
        """Number of offsets that go."""
        return self.log_start - self._facts.log_start

    def is_worth_an_entry(self) -> bool:
        """True if so much goes that a log start should be proposed before others are due: a share
        of the limit of bytes or of records."""
        _, bytes_max, records_max = self._limits
        return self.records > 0 and (
            (bytes_max != UNLIMITED and self.bytes * WORTH_SHARE >= bytes_max)
            or (records_max != UNLIMITED and self.records * WORTH_SHARE >= records_max))
