"""Messages of InitProducerId (API key 22).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest:
    """InitProducerIdRequest of Kafka 4.4.0, versions 0 to 6, flexible since 2."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1  # versions 3 to 6
    producer_epoch: int = -1  # versions 3 to 6
    enable2_pc: bool = False  # version 6
    keep_prepared_txn: bool = False  # version 6


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse:
    """InitProducerIdResponse of Kafka 4.4.0, versions 0 to 6, flexible since 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1  # version 6
    ongoing_txn_producer_epoch: int = -1  # version 6


_INIT_PRODUCER_ID_REQUEST__INIT_PRODUCER_ID_REQUEST = Struct("InitProducerIdRequest",
    InitProducerIdRequest, (
    Field("transactional_id", Kind.STRING, (0, 6), "", nullable=(0, 6)),
    Field("transaction_timeout_ms", Kind.INT32, (0, 6), 0),
    Field("producer_id", Kind.INT64, (3, 6), -1),
    Field("producer_epoch", Kind.INT16, (3, 6), -1),
    Field("enable2_pc", Kind.BOOL, (6, 6), False),
    Field("keep_prepared_txn", Kind.BOOL, (6, 6), False),
))
INIT_PRODUCER_ID_REQUEST = Message(22, (0, 6), (2, 6),
    _INIT_PRODUCER_ID_REQUEST__INIT_PRODUCER_ID_REQUEST)
_INIT_PRODUCER_ID_RESPONSE__INIT_PRODUCER_ID_RESPONSE = Struct("InitProducerIdResponse",
    InitProducerIdResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 6), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 6), 0),
    Field("producer_id", Kind.INT64, (0, 6), -1),
    Field("producer_epoch", Kind.INT16, (0, 6), 0),
    Field("ongoing_txn_producer_id", Kind.INT64, (6, 6), -1),
    Field("ongoing_txn_producer_epoch", Kind.INT16, (6, 6), -1),
))
INIT_PRODUCER_ID_RESPONSE = Message(22, (0, 6), (2, 6),
    _INIT_PRODUCER_ID_RESPONSE__INIT_PRODUCER_ID_RESPONSE)
