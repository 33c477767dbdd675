"""Schema checks that turn decoded CBOR into typed values.

Contract.  A check takes a plain value, returns the typed one, and raises ``Malformed`` with a text
that names the expectation.  The module knows no operation.  Rows are arrays on the wire and
``NamedTuple`` in the program.  A row has its exact length, but for the last field of a kind that
was extended: it is left out when it has its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, cast

from multiraft.errors import MultiRaftError

if TYPE_CHECKING:
    from multiraft.wire.frames import Buffer

Check = Callable[[Any], Any]

#: Number of rows from which whole columns are checked instead of single fields.  A call per field
#: would take 10 ms for the 10,000 rows of a request; columns take a few passes in C.
COLUMNS_FROM = 32

U64_MAX = (1 << 64) - 1
I64_MAX = (1 << 63) - 1
U32_MAX = (1 << 32) - 1
I32_MAX = (1 << 31) - 1
I16_MAX = (1 << 15) - 1


class Malformed(MultiRaftError):
    """A value that does not match the schema.  ``Connection`` turns it into INVALID_REQUEST on the
    server, and into a protocol error on the client."""


class Integer(NamedTuple):
    """A check for an int (not a bool) with low <= value <= high."""

    # Rows and shapes compare the bounds themselves: most fields are numbers, and the call would be
    # the cost of the check.

    low: int
    high: int

    def __call__(self, value: Any) -> Any:
        if type(value) is not int or not self.low <= value <= self.high:
            raise Malformed(f"expected an integer from {self.low} to {self.high}, "
                            f"got {_show(value)}")
        return value


integer = cast(Callable[[int, int], Check], Integer)


def _bounds(check: Check) -> tuple[Check, int, int]:
    """Return (check, lowest, highest value) of a field; the bounds of a check that is no
    ``Integer`` are empty (1 > 0)."""
    if type(check) is Integer:
        return (check, *check)  # type: ignore[return-value]  # a callable all the same
    return check, 1, 0


def text(length_max: int) -> Check:
    """Return a check for a str of at most ``length_max`` characters."""

    def check(value: Any) -> Any:
        if type(value) is not str or len(value) > length_max:
            raise Malformed(f"expected text of at most {length_max} characters, got {_show(value)}")
        return value

    return check


def one_of(*choices: str) -> Check:
    """Return a check for text that is one of ``choices``."""

    def check(value: Any) -> Any:
        if type(value) is not str or value not in choices:
            raise Malformed(f"expected one of {', '.join(choices)}, got {_show(value)}")
        return value

    return check


def fixed_bytes(length: int) -> Check:
    """Return a check for bytes of exactly ``length``."""

    def check(value: Any) -> Any:
        if type(value) is not bytes or len(value) != length:
            raise Malformed(f"expected {length} bytes, got {_show(value)}")
        return value

    return check


def byte_string(bytes_max: int) -> Check:
    """Return a check for at most ``bytes_max`` bytes."""

    def check(value: Any) -> Any:
        if type(value) is not bytes or len(value) > bytes_max:
            raise Malformed(f"expected at most {bytes_max} bytes, got {_show(value)}")
        return value

    return check


def boolean(value: Any) -> bool:
    """Return ``value`` if it is a bool. Raises ``Malformed`` for other values, numbers too."""
    if type(value) is not bool:
        raise Malformed(f"expected a boolean, got {_show(value)}")
    return value


def plain_map(value: Any) -> dict[Any, Any]:
    """Return ``value`` if it is any map (node statistics, whose keys its reader knows). Raises
    ``Malformed`` for other values."""
    if type(value) is not dict:
        raise Malformed(f"expected a map, got {_show(value)}")
    return value


def nullable(inner: Check) -> Check:
    """Return a check for null or a value that ``inner`` accepts."""

    def check(value: Any) -> Any:
        return None if value is None else inner(value)

    return check


def list_of(inner: Check, count_max: int) -> Check:
    """Return a check for a list of at most ``count_max`` items, which returns a tuple."""

    def check(value: Any) -> Any:
        if type(value) is not list:
            raise Malformed(f"expected a list, got {_show(value)}")
        if len(value) > count_max:
            raise Malformed(f"expected at most {count_max} items, got {len(value)}")
        if type(inner) is Row and len(value) >= COLUMNS_FROM:
            return inner.many(value)
        return tuple(map(inner, value))

    return check


class Row:
    """A check for an array of exactly these fields, which returns the NamedTuple ``kind``.
    ``last_is_optional``: the last field may be absent, and then has its default."""

    __slots__ = ("_kind", "_bounded", "_default")

    def __init__(self, kind: type[Any], *checks: Check, last_is_optional: bool = False):
        assert len(kind._fields) == len(checks), f"{kind.__name__} has {len(kind._fields)} fields"
        self._kind = kind
        self._bounded = tuple(map(_bounds, checks))
        self._default = [kind._field_defaults[kind._fields[-1]]] if last_is_optional else []

    def __call__(self, value: Any) -> Any:
        kind, bounded = self._kind, self._bounded
        if self._default and type(value) is list and len(value) == len(bounded) - 1:
            value = value + self._default
        if type(value) is not list or len(value) != len(bounded):
            raise Malformed(f"expected an array of {len(bounded)} fields "
                            f"({', '.join(kind._fields)}), got {_show(value)}")
        return _make(kind, [
            item if type(item) is int and low <= item <= high else field(item)
            for item, (field, low, high) in zip(value, bounded, strict=True)])

    def many(self, rows: list) -> tuple:
        """Return the typed values of ``rows``, checked by whole columns of numbers.  The error
        names the first invalid row, as a check of each row would.  O(fields)."""
        if {*map(type, rows)} != {list} or {*map(len, rows)} != {len(self._bounded)}:
            return tuple(map(self, rows))
        columns = []
        for column, (field, low, high) in zip(zip(*rows, strict=True), self._bounded, strict=True):
            if {*map(type, column)} == {int} and low <= min(column) and max(column) <= high:
                columns.append(column)
            elif low <= high:
                return tuple(map(self, rows))
            else:
                try:
                    columns.append(tuple(map(field, column)))
                except Malformed:
                    return tuple(map(self, rows))
        return tuple(map(_make, repeat(self._kind), zip(*columns, strict=True)))


row = Row


def without_default(value: Any) -> Any:
    """Return a row as it is encoded: without its last field, if that has its default.  Rows that
    earlier releases know keep their bytes."""
    last = value._fields[-1]
    return value[:-1] if value[-1] == value._field_defaults[last] else value


def each_without_default(rows: Iterable[Any]) -> tuple[Any, ...]:
    """Return rows as they are encoded.  O(rows)."""
    return tuple(map(without_default, rows))


#: A named tuple from its fields, without the Python function in front of it.
_make = tuple.__new__


class Shape:
    """Fields of one request or response: name -> check; those with a default may be absent.
    ``payload_bytes`` returns the payload bytes that a value names; None = it has no payload.
    ``sparse``: fields that are omitted when they are None, because earlier releases refuse
    them.  ``encoded``: name -> function that returns a field's value as it is encoded."""

    __slots__ = ("kind", "names", "payload_bytes", "_checks", "_sparse", "_encoded")

    def __init__(self, kind: type[Any], checks: dict[str, Check],
                 payload_bytes: Callable[[Any], int] | None = None, sparse: tuple[str, ...] = (),
                 encoded: Mapping[str, Callable[[Any], Any]] | None = None):
        self.kind = kind
        self.names = kind._fields[:len(checks)]  # a payload comes last
        assert set(self.names) == set(checks), kind.__name__
        self.payload_bytes = payload_bytes
        self._sparse = sparse
        self._encoded = tuple((encoded or {}).items())
        self._checks = {name: _bounds(check) for name, check in checks.items()}

    def read(self, fields: dict[str, Any], payload: Buffer = b"") -> Any:
        """Return the typed value of received ``fields``, with its payload.  Raises ``Malformed``
        that names a field which is unknown, missing or invalid, or the payload's size.
        O(fields)."""
        checks = self._checks
        values: dict[str, Any] = {}
        for name, value in fields.items():
            if name not in checks:
                raise Malformed(f"unknown field {_show(name)}")
            check, low, high = checks[name]
            if type(value) is int and low <= value <= high:
                values[name] = value
                continue
            try:
                values[name] = check(value)
            except Malformed as error:
                raise Malformed(f"field {name!r}: {error}") from None
        came = len(payload)
        if came and self.payload_bytes is not None:
            values["payload"] = payload
        try:
            value = self.kind(**values)
        except TypeError:
            missing = [name for name in checks if name not in values
                       and name not in self.kind._field_defaults]
            raise Malformed(f"missing field {missing[0]!r}") from None
        named = 0 if self.payload_bytes is None else self.payload_bytes(value)
        if named != came:
            raise Malformed(f"the header names {named} payload bytes, {came} came")
        return value

    def header(self, value: Any) -> dict[str, Any]:
        """Return name -> field of a value, without its payload and without sparse fields that are
        None."""
        fields = dict(zip(self.names, value, strict=False))
        for name in self._sparse:
            if fields[name] is None:
                del fields[name]
        for name, encode in self._encoded:
            fields[name] = encode(fields[name])
        return fields


def _show(value: Any) -> str:
    """Return a value as bounded text, so that a hostile one does not fill the error."""
    shown = repr(value) if not isinstance(value, (list, dict)) else (
        f"a {type(value).__name__} of {len(value)}")
    return shown if len(shown) <= 60 else shown[:57] + "..."
