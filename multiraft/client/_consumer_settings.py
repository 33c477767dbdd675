"""Settings of one consumer.

Contract.  Values; ``validate`` refuses invalid ones with ``ConfigError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from multiraft.client._records import Timestamp
from multiraft.client._replicas import PREFERENCES
from multiraft.errors import ConfigError
from multiraft.wire.messages import EARLIEST, LATEST, WAIT_MS_MAX
from multiraft.wire.schema import I32_MAX, I64_MAX

#: Staged records that a consumer delivers: those of committed transactions, or all.
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ISOLATIONS = (READ_COMMITTED, READ_UNCOMMITTED)

#: Positions from which a consumer continues when the records at its own were deleted: the log
#: start, the end, or none, which is an error (Kafka's auto.offset.reset).
NO_RESET = "none"
OFFSET_RESETS = (NO_RESET, EARLIEST, LATEST)

#: First position in a partition: "earliest", "latest", an offset, or a time.
PartitionStart = str | int | Timestamp
#: First positions of a consumer: one for all partitions, or one for each.  Partitions that a
#: mapping leaves out are read from their beginning, so that none of their records is skipped.
Start = PartitionStart | Mapping[int, PartitionStart]


def require_start(start: Start) -> None:
    """Raise ``ConfigError`` if ``start`` is neither a position nor positions by partition."""
    if not isinstance(start, Mapping):
        _require_position("start", start)
        return
    for partition, position in start.items():
        if type(partition) is not int or not 0 <= partition <= I32_MAX:
            raise ConfigError(f"start={{{partition!r:.80}: ...}}: the keys are numbers of "
                              "partitions, from 0 on")
        _require_position(f"start[{partition}]", position)


def _require_position(name: str, start: PartitionStart) -> None:
    good = (start in (EARLIEST, LATEST) if type(start) is str
            else 0 <= start <= I64_MAX if type(start) is int
            else type(start) is Timestamp and type(start.ms) is int and 0 <= start.ms <= I64_MAX)
    if not good:
        raise ConfigError(f"{name}={start!r:.80}: expected {EARLIEST!r}, {LATEST!r}, an offset or "
                          "a Timestamp" + (", or these by partition, as in {0: 17, 1: 4}"
                                           if name == "start" else ""))


def start_of(start: Start, partition: int) -> PartitionStart:
    """Return the first position in one partition."""
    return start.get(partition, EARLIEST) if isinstance(start, Mapping) else start


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of one consumer (``Client.consume``)."""

    #: Bytes that one partition may have fetched ahead, and the most that a fetch asks of it.
    partition_bytes_max: int = 1 << 20
    #: Bytes of one fetch of several partitions.
    fetch_bytes_max: int = 8 << 20
    #: Duration of a long poll, and so the interval of requests of an idle consumer.
    wait_max_ms: int = 500
    #: A partition that could not be read for this long raises its last error.
    unavailable_ms: int = 30_000
    request_timeout_ms: int = 10_000
    #: Replica to ask first.  "leader": it has committed records first.  "nearest": a replica in
    #: ``rack`` causes no traffic between racks, and serves committed records slightly later.
    prefer: str = "leader"
    #: Rack of this consumer, for ``prefer="nearest"``.
    rack: str = ""
    #: One of ``ISOLATIONS``.
    isolation: str = READ_COMMITTED
    #: One of ``OFFSET_RESETS``.  An error by default, because a consumer that skips records by
    #: itself hides their loss.
    offset_reset: str = NO_RESET

    def validate(self) -> "ConsumerSettings":
        """Return the settings.  Raises ``ConfigError`` that names an invalid one."""
        for name in self.__slots__:
            value = getattr(self, name)
            wanted = type(getattr(_DEFAULTS, name))
            if type(value) is not wanted:
                raise ConfigError(f"{name}={value!r:.80} must be {wanted.__name__}")
            if wanted is int and not 1 <= value <= _MOST.get(name, I64_MAX):
                raise ConfigError(f"{name}={value} is outside 1..{_MOST.get(name, I64_MAX)}")
        if self.prefer not in PREFERENCES:
            raise ConfigError(f"prefer={self.prefer!r}: expected one of {PREFERENCES}")
        if self.isolation not in ISOLATIONS:
            raise ConfigError(f"isolation={self.isolation!r}: expected one of {ISOLATIONS}")
        if self.offset_reset not in OFFSET_RESETS:
            raise ConfigError(f"offset_reset={self.offset_reset!r}: expected one of "
                              f"{OFFSET_RESETS}")
        return self


#: Upper bounds of settings that a fetch request carries.
_MOST = {"partition_bytes_max": I32_MAX, "fetch_bytes_max": I32_MAX, "wait_max_ms": WAIT_MS_MAX}
_DEFAULTS = ConsumerSettings()
