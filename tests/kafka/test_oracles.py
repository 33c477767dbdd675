"""Messages beside two other implementations, kio and kafka-python, in both directions.

Contract.  Each served API in each served version: what we encode, they decode, and encode again to
the same bytes; what they encode, we decode.  kafka-python's fields have the names of the schema, so
their values are compared too.  ``BEYOND`` has the versions that an implementation does not know.
"""

from __future__ import annotations

import importlib
import io
import warnings

import pytest
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from multiraft.kafka import generic_encoder
from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.generic_decoder import decode
from multiraft.kafka.messages.table import REQUESTS, RESPONSES
from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Struct, within
from tests.kafka import values

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    KAFKA_PYTHON = [importlib.import_module(f"kafka.protocol.{name}")
                    for name in ("producer", "consumer", "metadata", "admin")]

SAMPLES = 12
#: Values that kio takes for other types: errors as an enum, times in its range.
KIO_VALUES = {
    "error_code": (0, 3, 6, 35), "topic_config_error_code": (0, 3),
    **dict.fromkeys(("max_wait_ms", "timeout_ms", "throttle_time_ms", "session_timeout_ms",
                     "rebalance_timeout_ms", "transaction_timeout_ms", "retention_time_ms"),
                    (0, 1, 30_000)),
    **dict.fromkeys(("log_append_time_ms",), (-1, 0, 1_700_000_000_123))}
#: kafka-python has sets for bits of operations, and under another name: only bytes are compared.
OPERATIONS = ("authorized_operations", "cluster_authorized_operations",
              "topic_authorized_operations")
KAFKA_PYTHON_VALUES = dict.fromkeys(OPERATIONS, (8, 264, 3400))
#: (implementation, key) -> first version that it does not have.
BEYOND = {("kio", 18): 5, ("kafka-python", 18): 5}
SIDES = (("request", REQUESTS), ("response", RESPONSES))


def kio_class(kind: str, key: int, version: int) -> type:
    """Return kio's class of a message."""
    name = api_key_map[key]
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    camel = "".join(part.title() for part in name.split("_"))
    return getattr(module, camel + kind.title())


@pytest.mark.parametrize("kind,table", SIDES, ids=["request", "response"])
@pytest.mark.parametrize("key", APIS)
def test_kio_reads_and_writes_the_same_bytes(kind, table, key):
    first, last = APIS[key].served
    message = table[key]
    for version in range(first, min(last + 1, BEYOND.get(("kio", key), 99))):
        theirs = kio_class(kind, key, version)
        read, write = entity_reader(theirs), entity_writer(theirs)
        samples = values.Samples(6, KIO_VALUES)
        for _ in range(SAMPLES):
            given = samples.of(message, version)
            data = b"".join(generic_encoder.encode(message, values.built(message, given), version,
                                                   b""))
            entity, size = read(data, 0)
            assert size == len(data)
            again = io.BytesIO()
            write(again, entity)
            assert again.getvalue() == data, f"version {version}"
            found, _ = decode(message, again.getvalue(), 0, version, values.ELEMENTS_MAX)
            assert values.plain(message.struct, found, version) == given


def kafka_python_class(name: str) -> type:
    """Return kafka-python's class of a message."""
    for module in KAFKA_PYTHON:
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


def same(struct: Struct, given: dict, theirs: object, version: int) -> None:
    """Assert that an object of kafka-python has the values of a plain struct."""
    for field in struct.fields:
        if within(version, field.versions) and field.name not in OPERATIONS:
            same_field(field, given[field.name], getattr(theirs, field.name), version)


def same_field(field: Field, given: object, theirs: object, version: int) -> None:
    """Assert that a field has the same value in both.  A UUID of zeros is None in kafka-python, and
    so is a struct that was not sent."""
    if theirs is None and field.kind in (Kind.UUID, Kind.STRUCT) and not field.array:
        assert given in (None, ZERO_UUID) or field.tag >= 0
    elif given is None or field.struct is None:
        theirs = list(theirs) if field.array and theirs is not None else theirs
        if isinstance(given, bytes) and len(given) == 16 and hasattr(theirs, "bytes"):
            theirs = theirs.bytes
        assert (bytes(theirs) if isinstance(given, bytes) else theirs) == given, field.name
    elif field.array:
        assert len(given) == len(theirs)
        for one, other in zip(given, theirs):
            same(field.struct, one, other, version)
    else:
        same(field.struct, given, theirs, version)


@pytest.mark.parametrize("kind,table", SIDES, ids=["request", "response"])
@pytest.mark.parametrize("key", APIS)
def test_kafka_python_reads_and_writes_the_same_values(kind, table, key):
    message = table[key]
    theirs = kafka_python_class(message.name)
    first, last = APIS[key].served
    special = dict(KAFKA_PYTHON_VALUES)
    if key == ApiKey.API_VERSIONS:
        special["error_code"] = (0,)  # it takes an answer with an error for one of version 0
    for version in range(first, min(last + 1, BEYOND.get(("kafka-python", key), 99))):
        samples = values.Samples(7, special)
        for _ in range(SAMPLES):
            given = samples.of(message, version)
            data = b"".join(generic_encoder.encode(message, values.built(message, given), version,
                                                   b""))
            read = theirs.decode(data, version=version)
            same(message.struct, given, read, version)
            read._header = None  # its encoder needs one, its decoder sets none
            again = read.encode(version=version)
            found, end = decode(message, again, 0, version, values.ELEMENTS_MAX)
            assert end == len(again)
            assert values.plain(message.struct, found, version) == given
