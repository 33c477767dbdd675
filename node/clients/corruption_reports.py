"""Corruption reports: a client that received a damaged batch asks this node to verify its copy.

Contract. ``handle`` verifies both copies of the batch, on disk and in memory, off the loop, and
replies with the result. A damaged copy quarantines the replica (``damaged``), which starts its
repair. An intact copy means that the damage happened on the way to the client. The report itself is
not evidence: no client can quarantine a replica by a false report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.errors import Compacted
from multiraft.storage.errors import CorruptRange
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import ANY, ReportCorruption, ReportCorruptionReply
from node.access import Operation
from node.clients.read_view import ReadView, Refused
from node.clients.topic_access import TopicAccess
from node.errors import is_exhausted, journal_unreadable

if TYPE_CHECKING:
    from multiraft.storage.io_jobs import VerifyJob
    from multiraft.storage.store import Store
    from node.clients.session import Answer
    from node.loop.background import Background

#: Reports verified at a time: each reads a batch from the disk, and a client may repeat its report.
REPORTS_MAX = 4


class CorruptionReports:
    """The handler of ``ReportCorruption`` requests of all sessions."""

    def __init__(self, read_view: ReadView, store: Store, background: Background,
                 damaged: Callable[[CorruptRange], None], request_round: Callable[[], None]):
        self._read_view = read_view
        self._store = store
        self._background = background
        self._damaged = damaged  # (CorruptRange): a read found damage
        self._request_round = request_round
        self._at_work = 0
        self.received = 0
        self.confirmed = 0

    def handle(self, request: ReportCorruption, answer: Answer, seen_index: int = 0) -> None:
        """Verify this node's copy of the reported batch in a background task. ``answer`` is called
        exactly once, at once if the report is refused or this disk has no such batch.
        ``seen_index``: the newest metadata index that the client knows."""
        self.received += 1
        try:
            span = self._read_view.readable_range(
                request.incarnation, seen_index, ANY, request.offset,
                TopicAccess(answer.session, Operation.READ))
            job = self._store.verify_job(span.group, request.incarnation, request.offset)
        except Refused as refused:
            answer.refuse(refused.code, refused.detail)
            return
        except Compacted:
            job = None
        if job is None:
            answer(ReportCorruptionReply(False))  # this disk has no such batch
        elif self._at_work >= REPORTS_MAX:
            answer.refuse(Code.QUEUE_FULL, ErrorDetail(
                text="too many corruption reports at a time", limit=REPORTS_MAX,
                value=self._at_work + 1))
        else:
            self._at_work += 1
            if not self._background.start(self._verify, job, answer):
                self._at_work -= 1
                answer.refuse(Code.QUEUE_FULL, ErrorDetail(text="too many background tasks"))

    async def _verify(self, job: VerifyJob, answer: Answer) -> None:
        damaged = False
        try:
            await self._background.read(job)
        except CorruptRange as error:
            damaged = True
            self.confirmed += 1
            self._damaged(error)
        except Compacted:
            damaged = False  # nothing needs the batch any longer
        except OSError as error:
            if not is_exhausted(error):
                raise journal_unreadable(error) from error
            answer.refuse(Code.QUEUE_FULL, ErrorDetail(
                text=f"the node cannot open a file now: {error.strerror}"))
            self._request_round()
            return
        finally:
            self._at_work -= 1
        answer(ReportCorruptionReply(damaged))
        self._request_round()  # a round sends the reply
