"""Produce requests of Kafka's clients.

Contract. Batches go to the node's produce handler as views of the received bytes. A partition that
does not exist, and records that are no single batch of format 2, are refused here; all other
partitions of the request are appended. Kafka's acks 0, 1 and -1 are the ack levels ``none``,
``leader`` and ``commit``. A request in the name of a transaction is refused as a whole.

Theory. A transactional batch is one of a sink's transaction, which only the native protocol writes.
A client of Kafka that sets the bit has begun no transaction here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from multiraft.codec import layout
from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import ProduceRequest, ProduceResponse
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import Buffer
from multiraft.wire.messages import ProduceReply, ProduceResult
from node.clients.native_requests import BATCH_ROWS, RequestHandler
from node.clients.produce import Appends
from node.clients.session import Answer, Session
from node.kafka.answers import KafkaAnswer, NoAnswer
from node.kafka.error_codes import Fault, absent, of_append
from node.kafka.topic_view import NO_PARTITION, Endpoint, TopicView, incarnation_of
from node.loop.steps import ROWS_PER_STEP, advanced

if TYPE_CHECKING:
    from node.kafka.raised_epochs import RaisedEpochs
    from node.metadata.topics import Topic

#: First version with ids of topics in place of names.
IDS_SINCE = 13
#: First version with zstd (KIP-110).
ZSTD_SINCE = 7
#: Codes of a batch whose producer id or epoch the metadata here have not granted.
_NOT_GRANTED = {Code.STALE_METADATA, Code.UNKNOWN_PRODUCER}
#: Kafka's acks -> ack level.
ACKS = {0: "none", 1: "leader", -1: "commit"}
#: Of a batch: its length behind these bytes and the base offset, partition leader epoch, format,
#: CRC, attributes.
_BATCH_START = struct.Struct(">iibIh")
_LENGTH_AT = 8

NO_TRANSACTIONS = Fault(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                        "this cluster has no transactions of Kafka's clients")
IN_TRANSACTION = NO_TRANSACTIONS._replace(text="a transactional batch; " + NO_TRANSACTIONS.text)
OLD_FORMAT = Fault(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                   "records of format 0 or 1; only format 2 (Kafka 0.11 and later) is accepted")
EARLY_ZSTD = Fault(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                   f"zstd needs version {ZSTD_SINCE} of the request")
NO_BATCH = Fault(ErrorCode.INVALID_RECORD, "no whole record batch")
MANY_BATCHES = Fault(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")

#: Of a record, beside the error of its batch.
NO_KEY = "a record without a key, in a topic with cleanup.policy=compact"


class ProduceRequests:
    """The handler of produce requests."""

    def __init__(self, produce_handler: RequestHandler, topics: TopicView,
                 raised_epochs: RaisedEpochs):
        self._produce_handler = produce_handler
        self._topics = topics
        self._raised_epochs = raised_epochs

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Propose the batches of a request and answer it once they are decided. O(partitions), in
        steps."""
        message: ProduceRequest = request.message
        count = sum(len(topic.partition_data) for topic in message.topic_data)
        session.rows_left -= BATCH_ROWS * count
        if message.acks not in ACKS:
            self._refuse_all(session, number, request, Fault(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={message.acks}; 0, 1 and -1 are known"))
        elif message.transactional_id is not None:
            self._refuse_all(session, number, request, NO_TRANSACTIONS)
        else:
            session.run_steps(advanced(self._appended(session, number, request)), changes=True)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        if not request.message.acks:
            NoAnswer(session, 0).refuse(code, detail)
        else:
            KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)

    def _refuse_all(self, session: Session, number: int, request: KafkaRequest, fault: Fault
                    ) -> None:
        if not request.message.acks:
            NoAnswer(session, 0).refuse(Code.INVALID_REQUEST, ErrorDetail(fault.text))
        else:
            KafkaAnswer(session, number, partial(_refusal, request))(
                _all_refused(request.message, fault))

    def _appended(self, session: Session, number: int, request: KafkaRequest) -> Iterator[None]:
        """Collect the batches that may be proposed, and pass them on. Each step takes part of the
        partitions."""
        message: ProduceRequest = request.message
        appending = _Appending(self._topics, request.header.request_api_version)
        rows = 0
        for topic in message.topic_data:
            appending.begin_topic(topic)
            for part in topic.partition_data:
                rows += 1
                if rows > ROWS_PER_STEP:
                    rows = 0
                    yield
                appending.add(part)
        answer: Answer
        if message.acks:
            answer = _ProduceAnswer(session, number, request, appending, self._raised_epochs)
        else:
            answer = NoAnswer(session, appending.size, appending.fault)
        rest = self._produce_handler.handle(
            Appends(len(appending.batches), appending.batches, ACKS[message.acks],
                    max(0, message.timeout_ms), session), answer, 0)
        if rest is not None:
            yield from rest


class _Appending:
    """The partitions of one request: batches to propose, and the results of all partitions."""

    __slots__ = ("batches", "results", "responses", "size", "fault", "topics", "_version",
                 "_by_id", "_topic")

    def __init__(self, topics: TopicView, version: int):
        self.topics = topics
        self._version = version
        self._by_id = version >= IDS_SINCE
        self._topic: Topic | None = None  # whose partitions are added
        self.batches: list[tuple[int, memoryview]] = []
        self.results: list[Any] = []  # of ``batches``
        self.responses: list[Any] = []  # of topics, with the results of all their partitions
        self.size = 0  # bytes of ``batches``
        self.fault = ""  # of the last batch that was refused

    def begin_topic(self, topic: Any) -> None:
        """Begin with the partitions of a topic in the request."""
        self._topic = self.topics.topic(topic.name, topic.topic_id, self._by_id)
        self.responses.append(ProduceResponse.TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id))

    def add(self, part: Any) -> None:
        """Add a partition of the topic: to ``batches``, unless its records are refused here."""
        result = ProduceResponse.PartitionProduceResponse(index=part.index, base_offset=-1)
        self.responses[-1].partition_responses.append(result)
        incarnation = incarnation_of(self._topic, part.index)
        if incarnation == NO_PARTITION:
            refused: Fault | None = absent(self._topic is None and self._by_id)
        else:
            refused = records_fault(part.records, self._version)
        if refused is not None:
            result.error_code, result.error_message = refused
            self.fault = f"partition {part.index}: {refused.text}"
            return
        self.batches.append((incarnation, part.records))
        self.results.append(result)
        self.size += len(part.records)


class _ProduceAnswer(KafkaAnswer):
    """The reply callback of a produce request with acks."""

    __slots__ = ("_appending", "_raised_epochs")

    def __init__(self, session: Session, number: int, request: KafkaRequest,
                 appending: _Appending, raised_epochs: RaisedEpochs):
        super().__init__(session, number, partial(_refusal, request), appending.size)
        self._appending = appending
        self._raised_epochs = raised_epochs

    def __call__(self, reply: ProduceReply, payload: Sequence[Buffer] = ()) -> None:
        """Answer with the results of the produce handler and of the partitions that were refused
        before.  O(partitions)."""
        appending = self._appending
        leaders: dict[int, Endpoint] = {}
        for at, result in enumerate(reply.results):
            if result.code == Code.OK:
                self._acknowledge(at, result, reply.log_append_times_ms)
            else:
                self._fail(at, result, leaders)
        for batch, records in reply.keyless or ():
            self._name_keyless(batch, records)
        super().__call__(ProduceResponse(
            responses=appending.responses,
            node_endpoints=[ProduceResponse.NodeEndpoint(
                node_id=found.node, host=found.host, port=found.port, rack=found.rack)
                for found in leaders.values()]))

    def _acknowledge(self, at: int, result: ProduceResult, times_ms: Sequence[int] | None) -> None:
        """Enter offset and time of the batch at place ``at``, which was appended."""
        appending = self._appending
        response = appending.results[at]
        response.base_offset = result.base_offset
        if times_ms is not None:
            response.log_append_time_ms = times_ms[at]
        response.log_start_offset = appending.topics.log_start(appending.batches[at][0])

    def _fail(self, at: int, result: ProduceResult, leaders: dict[int, Endpoint]) -> None:
        """Enter the error of batch ``at``, with the leader that it names (KIP-951)."""
        detail = result.error or ErrorDetail()
        response = self._appending.results[at]
        incarnation, batch = self._appending.batches[at]
        code = result.code
        if code in _NOT_GRANTED and self._raised_epochs.note(batch):
            code = Code.STALE_METADATA  # clients repeat the batch
        response.error_code = of_append(code)
        if code == Code.UNKNOWN_PRODUCER:
            # Without a log start, clients repeat the batch without limit (KIP-360).
            response.log_start_offset = self._appending.topics.log_start(incarnation)
        response.error_message = detail.text or None
        named = self._appending.topics.leader_named(incarnation, detail)
        if named is None:
            return
        found = self._appending.topics.endpoint(named[0])
        if found is not None:
            leaders[found.node] = found
            response.current_leader = ProduceResponse.LeaderIdAndEpoch(
                leader_id=named[0], leader_epoch=named[1])

    def _name_keyless(self, at: int, records: Sequence[int]) -> None:
        """Enter the errors of the records without a key of batch ``at``."""
        self._appending.results[at].record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=record, batch_index_error_message=NO_KEY) for record in records]


def records_fault(records: memoryview | None, version: int) -> Fault | None:
    """Return the error of records that Kafka refuses with a number of its own: none at all, of an
    old format, more than one batch, transactional ones, or a compression that the ``version`` of
    the request does not have. None if the produce handler has to check them."""
    if records is None or len(records) < layout.BATCH_HEADER_BYTES:
        magic = records[layout.BATCH_MAGIC_AT] if (
            records is not None and len(records) > layout.BATCH_MAGIC_AT) else layout.BATCH_MAGIC
        return OLD_FORMAT if magic < layout.BATCH_MAGIC else NO_BATCH
    length, _epoch, magic, _crc, attributes = _BATCH_START.unpack_from(records, _LENGTH_AT)
    if magic < layout.BATCH_MAGIC:
        return OLD_FORMAT
    if attributes & layout.ATTRIBUTE_TRANSACTIONAL:
        return IN_TRANSACTION
    if (version < ZSTD_SINCE
            and attributes & layout.ATTRIBUTE_CODEC_MASK == layout.CODEC_ZSTD):
        return EARLY_ZSTD
    size = length + layout.BATCH_LENGTH_OVERHEAD
    if size > len(records):
        return NO_BATCH
    if layout.BATCH_HEADER_BYTES <= size < len(records):
        return MANY_BATCHES
    return None


def _refusal(request: KafkaRequest, code: Code, detail: ErrorDetail) -> ProduceResponse:
    return _all_refused(request.message, Fault(of_append(code), detail.text))


def _all_refused(message: ProduceRequest, fault: Fault) -> ProduceResponse:
    """Return the response that refuses every partition of a request.  O(partitions)."""
    return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=[
            ProduceResponse.PartitionProduceResponse(
                index=part.index, base_offset=-1, error_code=fault.error,
                error_message=fault.text) for part in topic.partition_data])
        for topic in message.topic_data])
