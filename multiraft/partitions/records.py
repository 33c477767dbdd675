"""Payloads of the entries that open and seal a partition in a group.

Contract.  ``parse_open`` and ``parse_seal`` read the results of ``open_payload`` and
``seal_payload``.  They raise ``CorruptEntry`` for any other bytes.  Bytes: docs/storage-format.md.

Theory.  A partition begins in the group where the hash or an exception places it, with an opening
that has no predecessor (version 1).  It continues in another group with an opening that carries the
contents of the applied seal of its previous group (version 2): the end offset, the producers'
windows, and the highest leader epoch ever stamped.  So the new group needs nothing from the old
one, and the two logs alone order two entries of the same kind.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft.errors import CorruptEntry, ProposalError
from multiraft.types import Payload

#: PARTITION_OPEN payload, little-endian: u32 version, u32 leader epoch base, u64 epoch, i64 start
#: offset; in version 2 then i64 log start and the carried producer windows.
OPEN_STRUCT = struct.Struct("<IIQq")
OPEN_VERSION = 1
OPEN_VERSION_WITH_WINDOWS = 2
_LOG_START = struct.Struct("<q")

#: PARTITION_SEAL payload, little-endian: u32 version, u64 the epoch that ends.
SEAL_STRUCT = struct.Struct("<IQ")
SEAL_VERSION = 1

#: The stamped leader epoch is an i32 on the wire: base + term must fit.
LEADER_EPOCH_MAX = (1 << 31) - 1

#: ``PartitionOpen.log_start`` of a partition without a predecessor.
NO_PREDECESSOR = -1


class PartitionOpen(NamedTuple):
    """Parsed PARTITION_OPEN payload.  ``log_start`` is ``NO_PREDECESSOR`` if nothing was
    carried."""

    epoch: int
    start_offset: int
    leader_epoch_base: int
    log_start: int = NO_PREDECESSOR
    windows: bytes = b""  # ``producer_state.export_windows``


class PartitionSeal(NamedTuple):
    """Contents of a partition's applied seal: everything that the next group needs."""

    epoch: int  # the epoch that ended
    end_offset: int
    log_start: int
    leader_epoch: int  # no batch of the partition carries a higher one
    windows: bytes  # ``producer_state.export_windows``


def open_payload(epoch: int, start_offset: int = 0, leader_epoch_base: int = 0,
                 log_start: int = NO_PREDECESSOR, windows: bytes = b"") -> bytes:
    """Return the payload of a PARTITION_OPEN entry.

    ``leader_epoch_base`` + term is stamped into batches.  The proposer chooses a base that keeps
    the stamp above every earlier one of the partition."""
    assert 0 <= start_offset, f"start offset {start_offset}"
    assert 0 <= leader_epoch_base <= LEADER_EPOCH_MAX, f"leader epoch base {leader_epoch_base}"
    if log_start == NO_PREDECESSOR:
        assert not windows, "windows of a partition without a past"
        return OPEN_STRUCT.pack(OPEN_VERSION, leader_epoch_base, epoch, start_offset)
    head = OPEN_STRUCT.pack(OPEN_VERSION_WITH_WINDOWS, leader_epoch_base, epoch, start_offset)
    return head + _LOG_START.pack(log_start) + windows


def continue_payload(sealed: PartitionSeal, term: int) -> bytes:
    """Return the payload of the opening that a leader of ``term`` appends to continue after
    ``sealed``.

    Stamps of this and every later term are above all that the partition carries.  Raises
    ``ProposalError`` if no i32 is left above them."""
    base = max(0, sealed.leader_epoch + 1 - term)
    if base + term > LEADER_EPOCH_MAX:
        raise ProposalError(f"leader epoch {base + term} would exceed the limit of "
                            f"{LEADER_EPOCH_MAX}")
    return open_payload(sealed.epoch + 1, sealed.end_offset, base, sealed.log_start,
                        sealed.windows)


def parse_open(payload: Payload) -> PartitionOpen:
    """Return the fields of a PARTITION_OPEN payload. Raises ``CorruptEntry`` for another length or
    version, and for impossible offsets."""
    if len(payload) < OPEN_STRUCT.size:
        raise CorruptEntry(f"a PARTITION_OPEN payload has {OPEN_STRUCT.size} bytes or more, this "
                           f"one {len(payload)}")
    version, leader_epoch_base, epoch, start_offset = OPEN_STRUCT.unpack_from(payload)
    log_start, rest = NO_PREDECESSOR, bytes(payload[OPEN_STRUCT.size:])
    if version == OPEN_VERSION_WITH_WINDOWS and len(rest) >= _LOG_START.size:
        log_start, rest = _LOG_START.unpack_from(rest)[0], rest[_LOG_START.size:]
        if not 0 <= log_start <= start_offset:
            raise CorruptEntry(f"PARTITION_OPEN at offset {start_offset} with log start "
                               f"{log_start}")
    elif version != OPEN_VERSION or rest:
        raise CorruptEntry(f"a PARTITION_OPEN payload of version {version} and {len(payload)} "
                           f"bytes; known are {OPEN_VERSION} and {OPEN_VERSION_WITH_WINDOWS}")
    if start_offset < 0 or leader_epoch_base > LEADER_EPOCH_MAX:
        raise CorruptEntry(f"PARTITION_OPEN at offset {start_offset} with leader epoch base "
                           f"{leader_epoch_base}")
    return PartitionOpen(epoch, start_offset, leader_epoch_base, log_start, rest)


def seal_payload(epoch: int) -> bytes:
    """Return the payload of a PARTITION_SEAL entry that ends ``epoch``."""
    return SEAL_STRUCT.pack(SEAL_VERSION, epoch)


def parse_seal(payload: Payload) -> int:
    """Return the epoch that a PARTITION_SEAL payload ends. Raises ``CorruptEntry`` for another
    length or version."""
    if len(payload) != SEAL_STRUCT.size:
        raise CorruptEntry(f"a PARTITION_SEAL payload has {SEAL_STRUCT.size} bytes, this one "
                           f"{len(payload)}")
    version, epoch = SEAL_STRUCT.unpack(payload)
    if version != SEAL_VERSION:
        raise CorruptEntry(f"PARTITION_SEAL payload of version {version}, known is "
                           f"{SEAL_VERSION}")
    return epoch
