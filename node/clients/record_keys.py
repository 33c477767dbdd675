"""Keys of the records in a batch for a topic with compaction.

Contract. ``KeyCheck.execute`` returns if every record of a batch has a key. It raises
``RecordsWithoutKey`` with the positions of those that have none, ``OverDecodedLimit`` before more
than the limit is decompressed, and ``InvalidBatch`` for records that cannot be decompressed or
read. It touches nothing of the node, so it may run on a thread.

Theory. Compaction keeps the newest record of each key: a record without a key has no place in it.
As in Kafka, a null key is none, and an empty key is a key. The CRC of the batch is intact when its
records are read, so its sender wrote what cannot be read, and would send it again: that is
``InvalidBatch``, which no client repeats, and not ``CorruptBatch``, which all do.
"""

from __future__ import annotations

from multiraft import core
from multiraft.codec import layout
from multiraft.compression import DECOMPRESSED_BYTES_MAX, DecompressionTooLarge, decompress
from multiraft.errors import BatchTooLarge, CorruptBatch, InvalidBatch
from multiraft.wire.messages import KEYLESS_NAMED_MAX

#: Positions that the text of an error has: it is read by people.
_KEYLESS_SHOWN = 3
#: Largest uncompressed batch whose records are walked on the loop: 0.3 ms with the smallest
#: records, as long as ``check_batch`` takes.
LOOP_BYTES_MAX = 64 << 10
#: Multiple of the topic's ``max.message.bytes`` up to which a batch may decompress: text of logs
#: and JSON has 5 to 15 times the size of its zstd.
DECODED_RATIO_MAX = 16
#: Bytes up to which it may decompress in any case: what clients of this project open at most.
DECODED_BYTES_MAX = DECOMPRESSED_BYTES_MAX


class RecordsWithoutKey(InvalidBatch):
    """A batch of ``count`` records, of which ``keyless`` have no key, for a topic with compaction.
    ``records``: positions of the first ``KEYLESS_NAMED_MAX`` of them in the batch."""

    def __init__(self, keyless: int, count: int, records: tuple[int, ...]):
        shown = ", ".join(map(str, records[:_KEYLESS_SHOWN]))
        more = ", ..." if keyless > _KEYLESS_SHOWN else ""
        super().__init__(f"{keyless} of {count} records have no key (numbers {shown}{more} of the "
                         f"batch): the topic has cleanup.policy=compact")
        self.keyless = keyless
        self.records = records


class OverDecodedLimit(BatchTooLarge):
    """A batch whose records exceed ``limit`` bytes when decompressed. ``value``: the announced
    size, or ``limit`` + 1 after which decompression stopped."""

    def __init__(self, limit: int, value: int | None):
        announced = f"are {value} bytes" if value is not None else "are larger"
        super().__init__(f"the records {announced} when decompressed; the limit is {limit}: "
                         f"{DECODED_RATIO_MAX} times max.message.bytes of the topic, at most "
                         f"{DECODED_BYTES_MAX}")
        self.limit = limit
        self.value = limit + 1 if value is None else value


class KeyCheck:
    """A job that looks for records without a key in a batch that ``check_batch`` accepted.
    ``batch_bytes_max``: of the topic."""

    __slots__ = ("_batch", "_codec", "_batch_bytes_max")

    def __init__(self, batch: memoryview, codec: int, batch_bytes_max: int):
        self._batch = batch
        self._codec = codec
        self._batch_bytes_max = batch_bytes_max

    @property
    def is_short(self) -> bool:
        """True if the loop may execute this."""
        return self._codec == layout.CODEC_NONE and len(self._batch) <= LOOP_BYTES_MAX

    def execute(self) -> None:
        """Return if every record has a key. O(bytes, decompressed), without the interpreter's lock.
        Raises ``RecordsWithoutKey``, ``OverDecodedLimit``, ``InvalidBatch``."""
        header = core.batch_header(self._batch)
        try:
            keyless, records = core.keyless_records(header, self._block(), KEYLESS_NAMED_MAX)
        except CorruptBatch as error:
            raise InvalidBatch(f"the records of the batch cannot be read: {error}") from error
        if keyless:
            raise RecordsWithoutKey(keyless, header.count, records)

    def _block(self) -> bytes | bytearray | memoryview:
        limit = decoded_bytes_max(self._batch_bytes_max)
        try:
            return decompress(self._codec, self._batch[layout.BATCH_HEADER_BYTES:], limit)
        except DecompressionTooLarge as error:
            raise OverDecodedLimit(limit, error.value) from error


def decoded_bytes_max(batch_bytes_max: int) -> int:
    """Return the bytes up to which the records of a batch may decompress, in a topic with that
    limit of batches."""
    return min(DECODED_RATIO_MAX * batch_bytes_max, DECODED_BYTES_MAX)
