"""Requests for copies of entries and their replies, as bulk connections carry them.

Contract. Encoding and decoding only; what is invalid is ``Malformed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multiraft.core import frame_entries, parse_entries
from multiraft.errors import CorruptEntry
from multiraft.storage.repair.coordinator import (
    ENTRIES_PER_REQUEST,
    RepairRequest,
    RepairResponse,
)
from multiraft.wire.schema import Malformed

OPERATION = "repair"
_U64 = (1 << 64) - 1


def request_header(request: RepairRequest) -> dict:
    """Return the header of a request."""
    return {"op": OPERATION, "group": request.group, "incarnation": request.incarnation,
            "wanted": list(map(list, request.wanted)), "term": request.term}


def read_request(header: dict) -> RepairRequest:
    """Decode a request. Raises ``Malformed``."""
    group: Any = header.get("group")
    incarnation: Any = header.get("incarnation")
    term = header.get("term", 0)  # nodes of earlier builds do not say it
    # Incarnation 0 stands for a group without a replica here, which has no entries to request.
    for value, least in ((group, 0), (incarnation, 1), (term, 0)):
        if type(value) is not int or not least <= value <= _U64:
            raise Malformed("a repair request without group and incarnation, or with a wrong term")
    return RepairRequest(group, incarnation, _places(header.get("wanted")), term)


def response_frame(response: RepairResponse | None) -> tuple[dict, Sequence]:
    """Return header and payload of a reply; None = the node does not know the group."""
    if response is None:
        return {"op": OPERATION, "known": False}, []
    buffers = frame_entries(response.entries, 0, 0)[0] if response.entries else []
    return {"op": OPERATION, "known": True, "leads": response.leads,
            "absent": list(map(list, response.absent)),
            "compacted": list(map(list, response.compacted))}, buffers


def read_response(request: RepairRequest, header: dict,
                  payload: memoryview) -> RepairResponse | None:
    """Decode the reply of a peer; None = the peer does not know the group. Raises ``Malformed`` for
    invalid fields or a damaged copy."""
    if header.get("op") != OPERATION or not header.get("known"):
        return None
    try:
        entries = tuple(parse_entries(payload)) if len(payload) else ()
    except CorruptEntry as error:
        raise Malformed(f"a copy from a peer: {error}") from error
    return RepairResponse(request.group, request.incarnation, entries,
                          _places(header.get("absent")), header.get("leads") is True,
                          _places(header.get("compacted", [])), request.wanted)


def _places(rows: object) -> tuple[tuple[int, int], ...]:
    if type(rows) is not list or len(rows) > ENTRIES_PER_REQUEST:
        raise Malformed(f"more than {ENTRIES_PER_REQUEST} entries in a repair")
    for row in rows:
        if (type(row) is not list or len(row) != 2
                or not all(type(value) is int and 0 <= value <= _U64 for value in row)):
            raise Malformed(f"no (index, term): {row!r:.60}")
    return tuple((index, term) for index, term in rows)
