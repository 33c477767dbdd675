"""What may be read of a partition at this node now, and who else to ask.

Contract.  ``span`` answers from memory in O(1) or raises ``Refused`` with the code and detail that
the client gets.  What it names as readable is applied here: committed *and* durable, so it survives
this node and is never un-read, whoever leads.

Theory.  Applied state is a prefix of what is committed on every replica, so any of them may serve
it; only the leader knows where the end is, and only a leader that a majority has confirmed since
knows it for certain.  A sleeping group's members all know the commit index: it sleeps only when
they do.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import ANY
from node.refusals import refusal


class Range(NamedTuple):
    """What may be served of a partition now."""

    group: int
    log_start: int
    high_watermark: int
    next_offset: int
    leads: bool  # this node leads the group
    settled: bool  # ... and has committed in its own term


class Refused(Exception):
    """A code and detail for one partition; the part of the node that asked answers with it.
    ``passing``: the next commit may change it, so a long poll waits."""

    def __init__(self, code: Code, detail: ErrorDetail, passing: bool = False):
        super().__init__(detail.text)
        self.code = code
        self.detail = detail
        self.passing = passing


class Readable:
    """Read-only view of partitions."""

    def __init__(self, core, tails, directory):
        self._core = core
        self._tails = tails
        self._directory = directory

    def span(self, partition: int, seen_index: int, replica: str) -> Range:
        """The range of a partition, at its leader or (``replica`` is ANY) at whatever replica this
        node has.  ``seen_index``: the newest metadata that the client knows of.  Raises
        ``Refused``."""
        place = self._directory.place_of(partition)
        if place is None:
            raise Refused(*refusal(self._directory.unknown(partition, seen_index),
                                   self._directory.leader_detail))
        group = place.group
        tail = self._tails.get(group)
        core = self._core
        leads = tail is not None and core.is_leader(group)
        if not leads:
            if tail is None or replica != ANY or not core.has_group(group):
                raise Refused(*self._directory.leader_detail(group))
            why = core.quarantine_reason(group)
            if why:
                raise Refused(Code.QUARANTINED, ErrorDetail(
                    text=f"the replica of group {group} on this node is damaged: {why}"))
        return Range(group, *tail.span(partition), leads, leads and core.is_settled(group))


#: Why a new leader does not say where the end is.
NOT_SETTLED = ErrorDetail(text="the leader is new and has not committed in its term yet")


def not_known_yet(offset: int, span: Range) -> Refused:
    """The refusal of an offset above what this replica knows to be committed."""
    if span.leads:
        return Refused(Code.OFFSET_NOT_AVAILABLE, NOT_SETTLED, passing=True)
    return Refused(Code.OFFSET_NOT_AVAILABLE, ErrorDetail(
        text=f"offset {offset}: this replica knows of commits up to {span.high_watermark} only",
        end_offset=span.high_watermark), passing=True)


def out_of_range(offset: int, span: Range) -> Refused:
    """The refusal that makes a client reset: only when it is certain."""
    return Refused(Code.OFFSET_OUT_OF_RANGE, ErrorDetail(
        text=f"offset {offset} is outside {span.log_start}..{span.high_watermark}",
        start_offset=span.log_start, end_offset=span.high_watermark))
