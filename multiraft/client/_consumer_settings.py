"""What one consumer may choose.

Contract.  Values; ``validate`` says which of them cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.client._records import Timestamp
from multiraft.client._replicas import PREFERENCES
from multiraft.errors import ConfigError
from multiraft.wire.messages import EARLIEST, LATEST, WAIT_MS_MAX
from multiraft.wire.schema import I32_MAX, I64_MAX

#: What a consumer gives of staged records: those that are committed, or all.
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ISOLATIONS = (READ_COMMITTED, READ_UNCOMMITTED)

#: Where to begin: a word, an offset, a time.
Start = str | int | Timestamp


def require_start(start: Start) -> None:
    """Raises ``ConfigError``."""
    good = (start in (EARLIEST, LATEST) if type(start) is str
            else 0 <= start <= I64_MAX if type(start) is int
            else type(start) is Timestamp and type(start.ms) is int and 0 <= start.ms <= I64_MAX)
    if not good:
        raise ConfigError(f"start={start!r:.80}: expected {EARLIEST!r}, {LATEST!r}, an offset or a "
                          "Timestamp")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Choices of one consumer."""

    #: What one partition may have fetched and not taken, and what one fetch asks of it.
    partition_bytes_max: int = 1 << 20
    #: One fetch of several partitions.
    fetch_bytes_max: int = 8 << 20
    #: A long poll's length: an idle consumer asks this seldom.
    wait_max_ms: int = 500
    #: A partition that could not be read for this long raises what was wrong last.
    unavailable_ms: int = 30_000
    request_timeout_ms: int = 10_000
    #: Whom to ask while there is a choice: the leader has everything first; a replica in our
    #: ``rack`` costs no traffic between racks, and shows what is committed a moment later.
    prefer: str = "leader"
    #: Where this consumer is, for ``prefer="nearest"``.
    rack: str = ""
    #: Whether staged records are given before they are committed.
    isolation: str = READ_COMMITTED

    def validate(self) -> "ConsumerSettings":
        """Raises ``ConfigError`` naming the setting."""
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
        return self


#: What a request for records can say.
_MOST = {"partition_bytes_max": I32_MAX, "fetch_bytes_max": I32_MAX, "wait_max_ms": WAIT_MS_MAX}
_DEFAULTS = ConsumerSettings()
