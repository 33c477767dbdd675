"""End of a certificate's validity, read from its file.

Theory.  Python's ``ssl`` tells it of the other side's verified certificate only, not of its own.
The field is at a fixed place (RFC 5280, section 4.1): a certificate is a sequence that begins with
another one, and that has, behind an optional version, serial number, algorithm, issuer and then
the two times of its validity.
"""

from __future__ import annotations

import ssl
from datetime import datetime, timezone
from pathlib import Path

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


def expiry_of(path: str) -> int:
    """Return the Unix time at which the first certificate in the PEM file ends; 0 = the file has
    none that can be read.  Raises ``OSError``."""
    text = Path(path).read_text("ascii", "replace")
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        return 0
    try:
        return expiry_in(ssl.PEM_cert_to_DER_cert(text[begin:end + len(_END)]))
    except (ValueError, IndexError):
        return 0


def expiry_in(data: bytes) -> int:
    """Return the Unix time at which a certificate in DER ends.  Raises ``ValueError`` or
    ``IndexError`` for bytes that are none."""
    at, _ = _inside(data, _inside(data, 0, _SEQUENCE)[0], _SEQUENCE)
    if data[at] == _VERSION:
        at = _inside(data, at)[1]
    for _field in ("serial number", "algorithm", "issuer"):
        at = _inside(data, at)[1]
    not_before, _ = _inside(data, at, _SEQUENCE)
    at = _inside(data, not_before)[1]
    begin, end = _inside(data, at)
    text = data[begin:end].decode("ascii")
    if data[at] == _UTC_TIME:  # years of two digits are 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif data[at] != _GENERALIZED_TIME:
        raise ValueError(f"no time, but {data[at]:#x}")
    when = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
    return int(when.timestamp())


def _inside(data: bytes, at: int, tag: int | None = None) -> tuple[int, int]:
    """Return begin and end of the content of the element at ``at``, which has ``tag`` if one is
    given."""
    if tag is not None and data[at] != tag:
        raise ValueError(f"element {data[at]:#x} where {tag:#x} is expected")
    size, begin = data[at + 1], at + 2
    if size & 0x80:  # the length itself takes so many bytes
        begin += size & 0x7F
        size = int.from_bytes(data[at + 2:begin], "big")
    if begin + size > len(data):
        raise ValueError("an element that is longer than the certificate")
    return begin, begin + size
