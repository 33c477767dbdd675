"""Numbers on the command line.

Contract.  Every number has a least and a greatest value and is written in ASCII digits: what click
and Python let through beside these (``nan``, ``inf``, digits of other scripts, ``1_000``, more than
64 bits) is a usage error here, before a clock, the wire or a file has to cope with it.
"""

from __future__ import annotations

import re
from typing import Any

import click

from multiraft.wire.messages import PARTITIONS_MAX

#: As the wire has them: ids of nodes have 31 bits, numbers of groups and partitions 32, offsets and
#: counts 63.  Below these it is the cluster that knows what there is.
NODE_ID_MAX = (1 << 31) - 1
GROUP_MAX = PARTITION_MAX = (1 << 32) - 1
COUNT_MAX = (1 << 63) - 1
#: Waits of a command; longer ones are slips of the keyboard.
DAY_S = 86_400
#: Characters shown of an input that is not a number.
_SHOWN_CHARACTERS = 40

_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
#: A word that can be a topic and no number.
_TOPIC = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,248}")
#: No number in a range has more: Python refuses to read some thousand digits.
_DIGITS_MAX = 25


class Whole(click.IntRange):
    """A whole number from ``least`` to ``most``."""

    name = "n"  # as help shows it

    def __init__(self, least: int, most: int):
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        """Return the number that ``value`` names, for click; anything else is a usage error."""
        if isinstance(value, str):
            if not _WHOLE.fullmatch(value):
                self.fail(f"{shown(value)} is not a whole number.", param, ctx)
            if len(value.lstrip("+-0")) > _DIGITS_MAX:
                self.fail(f"{shown(value)} is not in the range {self._describe_range()}.", param,
                          ctx)
        return super().convert(value, param, ctx)


class Real(click.FloatRange):
    """A number from ``least`` to ``most``, with a fraction if need be."""

    name = "number"

    def __init__(self, least: float, most: float):
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> float:
        """Return the number that ``value`` names, for click; anything else is a usage error."""
        if isinstance(value, str) and not _REAL.fullmatch(value):
            self.fail(f"{shown(value)} is not a number.", param, ctx)
        return super().convert(value, param, ctx)


def shown(value: str) -> str:
    """Return the input in quotes; of a long one the first ``_SHOWN_CHARACTERS`` and "..."."""
    short = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
    return repr(short)


class GroupNumber(Whole):
    """The number of a Raft group; the name of a topic is answered with the way to its groups."""

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        """Return the number that ``value`` names, for click; anything else is a usage error."""
        if isinstance(value, str) and _TOPIC.fullmatch(value):
            self.fail(f"{shown(value)} is not a group: a group is a number. The groups of a topic: "
                      f"`multiraft topic describe {value[:_SHOWN_CHARACTERS]}`.", param, ctx)
        return super().convert(value, param, ctx)


NODE = Whole(1, NODE_ID_MAX)
GROUP = GroupNumber(0, GROUP_MAX)
#: Any but the metadata group.
DATA_GROUP = Whole(1, GROUP_MAX)
PARTITION = Whole(0, PARTITION_MAX)
PARTITIONS = Whole(1, PARTITIONS_MAX)
#: Records, or the offset of one.
COUNT = Whole(1, COUNT_MAX)
#: Seconds over which loads are measured.
WINDOW = Real(0.2, 600)
