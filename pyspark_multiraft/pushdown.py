"""Filter pushdown: filters of a query that limit the offsets to read.

Contract.  Every row that is read satisfies the filters that ``take`` does not return.  Filters on
topic, partition and offset are exact.  Filters on time narrow the ranges and are returned, because
times of records do not rise with their offsets: records before the first one at or after the lower
bound are left out, and none at the end.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator

from pyspark.sql import datasource as spark

from multiraft.client.blocking import Client
from multiraft.client.ranges import Range
from pyspark_multiraft.planning import Partition

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Bounds:
    """Ranges that the filters taken so far leave."""

    def __init__(self):
        self._rules: list[tuple[str, Callable[[object], bool]]] = []
        self._first_offset = 0
        self._end_offset = (1 << 63) - 1
        self._from_ms = -1
        # topic -> offsets of ``_from_ms`` by partition
        self._found: dict[str, dict[int, int | None]] = {}

    def take(self, filters: Iterable[spark.Filter]) -> Iterator[spark.Filter]:
        """Use the filters that narrow the ranges; yield those that Spark still has to apply. A
        filter is used only as the iterator is consumed."""
        for each in filters:
            if not self._takes(each):
                yield each

    def admits(self, part: Partition) -> bool:
        """True if the filters on topic and number let any record of a partition through."""
        values = {"topic": part.topic, "partition": part.number}
        return all(rule(values[column]) for column, rule in self._rules)

    def cut(self, client: Client, part: Range) -> Range:
        """Return the part of a range that filters on offset and time leave, perhaps empty. The
        cluster is asked about a topic once, for all of its partitions."""
        first = max(part.start_offset, self._first_offset)
        end = min(part.end_offset, self._end_offset)
        if self._from_ms >= 0 and first < end:
            if part.topic not in self._found:
                self._found[part.topic] = client.offsets_at(part.topic, self._from_ms)
            found = self._found[part.topic].get(part.partition)
            first = max(first, part.end_offset if found is None else found)
        first = min(first, part.end_offset)
        return part._replace(start_offset=first, end_offset=max(first, end))

    def _takes(self, each: spark.Filter) -> bool:
        column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else ""
        if isinstance(each, spark.IsNotNull):
            return column in ("topic", "partition", "offset")
        if column == "topic":
            return self._takes_name(each)
        if column == "partition":
            return self._takes_number(each)
        if column == "offset":
            return self._takes_offset(each)
        if column == "timestamp":
            self._note_time(each)
        return False

    def _takes_name(self, each: spark.Filter) -> bool:
        if isinstance(each, spark.StringStartsWith):
            self._rules.append(("topic", lambda name: name.startswith(each.value)))
            return True
        return self._takes_equal("topic", each)

    def _takes_number(self, each: spark.Filter) -> bool:
        compare = _COMPARED.get(type(each))
        if compare is None:
            return self._takes_equal("partition", each)
        self._rules.append(("partition", lambda number: compare(number, each.value)))
        return True

    def _takes_equal(self, column: str, each: spark.Filter) -> bool:
        if isinstance(each, spark.EqualTo):
            self._rules.append((column, lambda value: value == each.value))
        elif isinstance(each, spark.In):
            self._rules.append((column, lambda value: value in each.value))
        else:
            return False
        return True

    def _takes_offset(self, each: spark.Filter) -> bool:
        if isinstance(each, (spark.EqualTo, spark.GreaterThanOrEqual, spark.GreaterThan)):
            first = each.value + isinstance(each, spark.GreaterThan)
            self._first_offset = max(self._first_offset, first)
        if isinstance(each, (spark.EqualTo, spark.LessThanOrEqual, spark.LessThan)):
            end = each.value + (not isinstance(each, spark.LessThan))
            self._end_offset = min(self._end_offset, end)
        return type(each) in _OFFSET_FILTERS

    def _note_time(self, each: spark.Filter) -> None:
        if isinstance(each, (spark.EqualTo, spark.GreaterThanOrEqual, spark.GreaterThan)):
            ms = (each.value - _EPOCH) // datetime.timedelta(milliseconds=1)
            self._from_ms = max(self._from_ms, ms)


_COMPARED = {spark.GreaterThan: lambda a, b: a > b, spark.GreaterThanOrEqual: lambda a, b: a >= b,
             spark.LessThan: lambda a, b: a < b, spark.LessThanOrEqual: lambda a, b: a <= b}
_OFFSET_FILTERS = (spark.EqualTo, *_COMPARED)
