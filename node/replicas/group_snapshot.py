"""Contents of a snapshot of a group with partitions, and their encoding.

Contract. ``capture`` copies references only, so it can run on the loop. ``decode`` takes time in
proportion to the state, in pieces (``multiraft.storage.chunked_cbor``): it is made for a thread.
Encoding: ``snapshot_state.encode``.

A snapshot has the states of the partitions and no record. The terms of the entries whose records
may exist go with it: they tell which entries of the receiver's own log are committed, and identify
the records that the receiver then copies (``record_copies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cbor2 import CBORDecodeError

from multiraft.codec import shapes
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.storage import chunked_cbor
from multiraft.types import Configuration
from multiraft.wire.schema import Malformed
from node.replicas.snapshot_state import CapturedState

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.snapshot_download import PartialSnapshot
    from multiraft.storage.store import Store

#: Shape of a snapshot: index and value of the configuration, partition states, first index and
#: (first index, term) of runs.
_SHAPE = (shapes.UINT, ([shapes.UINT],) * 3, shapes.ANYTHING,
          (shapes.UINT, [(shapes.UINT, shapes.UINT)]))


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """Contents of a snapshot that was received."""

    group: int
    bounds: LogBounds
    configuration_index: int
    configuration: Configuration
    partition_states: PartitionStates
    #: First index that the source has or lacks as a record; that behind the snapshot if none.
    first_index: int
    #: Runs of (first index, term) from ``first_index`` on; term 0 = not known.
    terms: tuple[tuple[int, int], ...]
    size: int  # encoded, in bytes


def capture(core: MultiRaft, store: Store, group: int) -> CapturedState:
    """Return the applied state of a group with partitions, which has a replica here."""
    bounds, configuration_index, configuration = core.snapshot_point(group)
    states = store.partition_states[group]
    assert states.applied_index == bounds.last_index, f"{states.applied_index}, {bounds}"
    first_index, terms = store.record_terms(group)
    return CapturedState(bounds, [configuration_index, list(map(list, configuration)),
                                  states.snapshot(), [first_index, list(map(list, terms))]])


def decode(group: int, download: PartialSnapshot) -> GroupSnapshot:
    """Decode a whole snapshot. Raises ``Malformed`` for bytes that are no snapshot of that group at
    the download's index, ``CodecError`` for damaged states in it. O(state)."""
    try:
        values: Any = chunked_cbor.loads(bytes(download.data))
        shapes.check(values, _SHAPE, "the snapshot")
        index, configuration, states, (first_index, runs) = values
        voters, learners, outgoing = map(tuple, configuration)
        restored = PartitionStates.restore(states)
    except (CBORDecodeError, ValueError, TypeError) as error:
        raise Malformed(f"not a snapshot: {error}") from error
    terms = tuple((first, term) for first, term in runs)
    if (restored.group, restored.applied_index) != (group, download.index):
        raise Malformed(f"a snapshot of group {restored.group} at {restored.applied_index}, called "
                        f"{group} at {download.index}")
    why = _wrong_terms(download, first_index, terms)
    if why:
        raise Malformed(f"the terms of a snapshot of group {group}: {why}")
    return GroupSnapshot(group, LogBounds(download.index + 1, download.term, download.index), index,
                         Configuration(voters, learners, outgoing), restored, first_index, terms,
                         download.total)


def _wrong_terms(download: PartialSnapshot, first_index: int,
                 terms: tuple[tuple[int, int], ...]) -> str:
    """Return why the runs are no terms of the indexes from ``first_index`` to the download's index;
    empty if they are."""
    if not 0 < first_index <= download.index + 1:
        return f"they begin at {first_index}"
    if first_index == download.index + 1:
        return "there are some for no index" if terms else ""
    starts = [start for start, _ in terms]
    if not starts or starts[0] != first_index or starts[-1] > download.index:
        return f"they do not cover {first_index} to {download.index}"
    if any(a >= b for a, b in zip(starts, starts[1:], strict=False)):
        return "they do not ascend"
    known = [term for _, term in terms if term]
    if known != sorted(known) or max(known, default=0) > download.term:
        return "they fall along the log"
    return ""
