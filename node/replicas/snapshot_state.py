"""Contents of a snapshot of the metadata group, and their encoding.

Contract. ``capture`` copies references only, so it can run on the loop. ``encode`` and ``decode``
take time in proportion to the state, in pieces (``multiraft.storage.chunked_cbor``): they are made
for a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from cbor2 import CBORDecodeError

from multiraft.codec import shapes
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.storage import chunked_cbor
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.schema import Malformed

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.snapshot_download import PartialSnapshot

#: Shape of a snapshot: index and value of the configuration, partition states, metadata.
_SHAPE = (shapes.UINT, ([shapes.UINT],) * 3, shapes.ANYTHING, shapes.ANYTHING)


class Snapshottable(Protocol):
    """State of the metadata group."""

    def snapshot(self) -> object:
        """Return the state as plain values, which later changes leave as they are."""


State = TypeVar("State", bound=Snapshottable)


@dataclass(frozen=True, slots=True)
class CapturedState:
    """Applied state of the group at one index, not encoded yet."""

    bounds: LogBounds
    values: list


@dataclass(frozen=True, slots=True)
class DecodedSnapshot(Generic[State]):
    """Contents of a snapshot that was received."""

    bounds: LogBounds
    configuration_index: int
    configuration: Configuration
    partition_states: PartitionStates
    state: State
    encoded: chunked_cbor.Encoded  # the state once more, for a checkpoint


def capture(core: MultiRaft, partition_states: PartitionStates,
            state: Snapshottable) -> CapturedState:
    """Return the applied state of the metadata group, which has a replica here."""
    bounds, configuration_index, configuration = core.snapshot_point(METADATA_GROUP)
    assert partition_states.applied_index == bounds.last_index, (
        f"{partition_states.applied_index}, {bounds}")
    return CapturedState(bounds, [configuration_index, list(map(list, configuration)),
                                  partition_states.snapshot(), state.snapshot()])


def encode(captured: CapturedState) -> bytes:
    """Return the bytes of a snapshot. O(state)."""
    return chunked_cbor.dumps(captured.values)


def decode(download: PartialSnapshot, restore: Callable[[Any], State]) -> DecodedSnapshot[State]:
    """Decode a whole snapshot; ``restore`` creates the metadata from the values of their
    ``snapshot``. Raises ``Malformed`` for bytes that are no snapshot of the download's index,
    ``CodecError`` for damaged records in it. O(state)."""
    try:
        values: Any = chunked_cbor.loads(bytes(download.data))
        shapes.check(values, _SHAPE, "the snapshot")
        index, configuration, tail, state = values
        voters, learners, outgoing = map(tuple, configuration)
        restored = PartitionStates.restore(tail)
        read = restore(state)
        decoded = DecodedSnapshot(
            LogBounds(download.index + 1, download.term, download.index), index,
            Configuration(voters, learners, outgoing), restored, read,
            chunked_cbor.Encoded(chunked_cbor.dumps(read.snapshot())))
    except (CBORDecodeError, ValueError, TypeError) as error:
        raise Malformed(f"not a snapshot: {error}") from error
    if restored.applied_index != download.index:
        raise Malformed(f"a snapshot of {restored.applied_index}, called {download.index}")
    return decoded
