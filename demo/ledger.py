"""Ledger of acknowledged records, and its comparison with the records that were read back.

Contract.  `Ledger` keeps an 8-byte digest of each record in the order in which it was sent, with a
flag for each acknowledged one.  `judge` compares a topic's ledger with what was read: every
acknowledged record must be there once and in order.  A record with an ambiguous outcome may be
there, at its place, or not; no other record may be there.

Theory.  A count finds a missing record
unless another is doubled; a checksum over the digests in order finds any difference but cannot say
which.  So equality is decided by count and checksum, and only when they differ the digests tell
what is missing, doubled, foreign or out of order.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def digest(key: bytes | None, value: bytes | None) -> int:
    """Return 64 bits of a hash of a record; the key's length keeps ("ab", "c") and ("a", "bc")
    apart."""
    key, value = key or b"", value or b""
    packed = hashlib.blake2b(b"%d:%b%b" % (len(key), key, value), digest_size=8).digest()
    return int.from_bytes(packed, "little")


def checksum(digests: Sequence[int]) -> str:
    """Return a checksum that depends on every record and on their order."""
    return hashlib.sha256(array("Q", digests).tobytes()).hexdigest()


class Ledger:
    """One topic's records as sent, in order."""

    def __init__(self):
        self._sent = array("Q")
        self._acknowledged = bytearray()  # one flag per record
        self.acknowledged_count = 0

    def sent(self, digests: Iterable[int]) -> range:
        """Note records as sent; the returned range names them in `acknowledged`."""
        first = len(self._sent)
        self._sent.extend(digests)
        self._acknowledged.extend(bytes(len(self._sent) - first))
        return range(first, len(self._sent))

    def acknowledged(self, records: range) -> None:
        """Note that the cluster has acknowledged these records."""
        assert not any(self._acknowledged[records.start:records.stop]), "acknowledged twice"
        self._acknowledged[records.start:records.stop] = b"\1" * len(records)
        self.acknowledged_count += len(records)

    @property
    def sent_count(self) -> int:
        """Return the number of records sent."""
        return len(self._sent)

    def digests(self) -> array:
        """Return the digest of every record sent, in order."""
        return array("Q", self._sent)

    def promised(self) -> array:
        """Return the digests of the acknowledged records, in order."""
        return array("Q", itertools.compress(self._sent, self._acknowledged))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Comparison of one topic.  ``missing`` and so on are numbers of records."""

    acknowledged: int
    read: int
    checksum_acknowledged: str
    checksum_read: str
    missing: int = 0
    doubled: int = 0
    foreign: int = 0
    out_of_order: int = 0
    unknown_found: int = 0  # records without an acknowledgement that were stored: allowed

    @property
    def holds(self) -> bool:
        """True if every acknowledged record is there, once, in order, and no foreign record is."""
        return (self.checksum_acknowledged == self.checksum_read
                and not (self.missing or self.doubled or self.foreign or self.out_of_order))


def judge(ledger: Ledger, read: Sequence[int]) -> Verdict:
    """Compare the acknowledged records with the digests that were read.  O(records)."""
    promised = ledger.promised()
    sums = checksum(promised), checksum(read)
    if sums[0] == sums[1]:
        return Verdict(len(promised), len(read), *sums)
    wanted = set(promised)
    sent = {each: place for place, each in enumerate(ledger.digests())}
    kept = [each for each in read if each in wanted]
    times = collections.Counter(read)
    places = [sent[each] for each in times if each in sent]  # in order of first appearance
    return Verdict(
        len(promised), len(read), sums[0], checksum(kept),
        missing=sum(each not in times for each in promised),
        doubled=sum(count - 1 for each, count in times.items() if each in sent),
        foreign=sum(count for each, count in times.items() if each not in sent),
        out_of_order=_descents(places),
        unknown_found=sum(each in sent and each not in wanted for each in times))


def _descents(places: Sequence[int]) -> int:
    """Return the number of records that follow one that was sent later."""
    newest, late = -1, 0
    for place in places:
        late += place < newest
        newest = max(newest, place)
    return late
