"""Command lines that continue a `consume` which was interrupted.

Contract.  Every flag that was given is given again, as click's own parser found it, so that a flag
which is added to the command needs no change here.  ``Position`` replaces those that choose where
the reading begins, and how many records it has.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import click

from admin_cli.console.options import ConnectionOption, connection_flags
from admin_cli.records.foreign_flags import typed_arguments
from admin_cli.session import Session

#: Partitions that one line names, with an offset for each.
PARTITIONS_MAX = 64
#: Lines, when each partition needs one because it has an end.
LINES_MAX = 8
#: Parameters of `consume` that a line has in its own words.
_REPLACED = frozenset({"start", "span", "from_beginning", "regex", "partition", "until_end",
                       "count", "count_alias"})


class Position(NamedTuple):
    """Position of an interrupted reading of one topic.

    ``offsets``: the next one of each partition; ``ends``: the exclusive ends of those that have
    one; ``partition``: the only one that is read, None = all; ``left``: records that remain of
    ``--count``; ``until_end``: ``--follow`` or ``--until-end``, "" = the default."""

    topic: str
    offsets: Mapping[int, int]
    ends: Mapping[int, int]
    partition: int | None
    left: int | None
    until_end: str


def command_lines(ctx: click.Context, position: Position,
                  without: Collection[str] = ()) -> list[str]:
    """Return the lines that continue at a position with the flags of ``ctx``; ``without`` names
    parameters to leave out. Empty when too many offsets or lines would be needed, or when nothing
    is left to read."""
    if position.ends:
        starts = [["--offset", f"{offset}:{position.ends[partition]}", "--partition",
                   str(partition)] for partition, offset in position.offsets.items()
                  if offset < position.ends[partition]]
        if len(starts) > LINES_MAX or (position.left is not None and len(starts) > 1):
            return []
    elif position.partition is not None:
        starts = [["--from", str(position.offsets[position.partition]), "--partition",
                   str(position.partition)]]
    elif len(position.offsets) > PARTITIONS_MAX:
        return []
    else:
        starts = [["--from", ",".join(f"{partition}={offset}" for partition, offset
                                      in position.offsets.items())]]
    rest = [*([] if position.left is None else ["--count", str(position.left)]),
            *([position.until_end] if position.until_end else []),
            *_given_flags(ctx, {*_REPLACED, *without})]
    return [shlex.join([*ctx.command_path.split(), position.topic, *start, *rest])
            for start in starts]


def _given_flags(ctx: click.Context, without: Collection[str]) -> list[str]:
    """Return the flags of the command line in the order in which they were given, the last of
    those that replace each other, then the flags of the connection."""
    values, _, order = ctx.command.make_parser(ctx).parse_args([*typed_arguments(ctx)])
    options = {parameter.name: parameter for parameter in order
               if isinstance(parameter, click.Option) and parameter.expose_value
               and not isinstance(parameter, ConnectionOption)}
    words: list[str] = []
    for name, option in options.items():
        if name not in without:
            words += _words(option, values[name])
    session = ctx.obj
    assert isinstance(session, Session)
    return [*words, *connection_flags(session)]


def _words(option: click.Option, value: object) -> Sequence[str]:
    """Return a flag with the values that it was given; it stands alone if it takes none."""
    flag = max(option.opts, key=len)
    if isinstance(value, str):
        return (flag, value)
    if isinstance(value, list):
        return [word for each in value for word in (flag, each)]
    return (flag,)
