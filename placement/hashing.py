"""64-bit mixing and the jump consistent hash: from a partition's number to a bucket.

Contract.  Integers in, integers out, the same everywhere; ``multiraft.core.jump_hash`` is the
compiled twin and must agree with the golden vectors of ``tests/placement/testdata``.

Theory.  Jump hash (Lamping, Veach: "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014) keeps
no state, spreads keys evenly up to sampling noise, and when bucket n is added moves exactly 1/(n+1)
of the keys, all of them into the new bucket.  Buckets can only be added and removed at the end,
which is what a pool of groups needs.  It expects a well mixed key, and incarnations are consecutive
numbers, hence ``mix64``, a bijection (splitmix64's finaliser: Steele, Lea, Flood, OOPSLA 2014).
The one division of doubles is exact to the last bit on every IEEE 754 machine.
"""

from __future__ import annotations

from placement.errors import LimitExceeded

#: Recorded with everything computed here: another hash is another version, never a silent change.
HASH_VERSION = 1

#: Buckets are i32 in the paper and in the compiled twin.
BUCKETS_MAX = (1 << 31) - 1

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: splitmix64's step


def mix64(value: int) -> int:
    """Return a bijection of 64-bit numbers in which every output bit depends on every input bit."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def partition_key(incarnation: int, seed: int, attempt: int = 0) -> int:
    """Return the 64-bit key of a partition incarnation for ``jump_hash``; each ``attempt`` gives an
    independent key."""
    stirred = mix64(incarnation + mix64(seed + _GOLDEN_GAMMA))
    return mix64(stirred + attempt * _GOLDEN_GAMMA)


def jump_hash(key: int, buckets: int) -> int:
    """Return the bucket of a 64-bit ``key``: 0 <= result < ``buckets``.  O(log buckets).  Raises
    ``LimitExceeded`` for a number of buckets outside 1..BUCKETS_MAX."""
    if not 1 <= buckets <= BUCKETS_MAX:
        raise LimitExceeded("buckets", BUCKETS_MAX, buckets)
    bucket, jump = -1, 0
    key &= _MASK
    while jump < buckets:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & _MASK
        jump = int((bucket + 1) * (2147483648.0 / ((key >> 33) + 1)))
    return bucket
