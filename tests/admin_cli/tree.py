"""The whole tree of commands, as click has it: for tests that try every parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from admin_cli.main import cli
from admin_cli.session import Session

#: Values of arguments and required options that a command can begin with, by name.
PLAUSIBLE = {"topic": "t", "name": "fresh", "topics": "t", "names": "fresh",
             "group_id": "1", "node_id": "1", "node": "1", "old": "1", "new": "2", "groups": "8",
             "partition": "0", "to_group": "1", "source": "1", "target": "2",
             "rate": "1MiB", "shell": "bash"}


class Found(NamedTuple):
    """A command of the tree, or one parameter of it."""

    path: tuple[str, ...]
    command: click.Command
    parameter: click.Parameter | None = None

    def __str__(self) -> str:
        parts = [*self.path, *([self.parameter.opts[0]] if self.parameter is not None else [])]
        return " ".join(parts)


def commands() -> Iterator[Found]:
    """Every command that is no group, those of other packages as well."""
    yield from _below(cli, (), click.Context(cli, obj=Session({})))


def _below(command: click.Command, path: tuple[str, ...], ctx: click.Context) -> Iterator[Found]:
    if not isinstance(command, click.Group):
        yield Found(path, command)
        return
    for name in command.list_commands(ctx):
        yield from _below(command.get_command(ctx, name), (*path, name), ctx)


def parameters() -> Iterator[Found]:
    """Every parameter of every command that takes a value."""
    for found in commands():
        for parameter in found.command.params:
            if not getattr(parameter, "is_flag", False):
                yield found._replace(parameter=parameter)


def typed(found: Found, value: str, place: str) -> list[str]:
    """The command line with ``value`` for the parameter and plausible values for what else is
    required.  ``place`` is a path, for whatever wants one."""
    options, arguments = [], []
    for parameter in found.command.params:
        mine = parameter is found.parameter
        text = value if mine else PLAUSIBLE.get(parameter.name, place)
        if not mine and not parameter.required:
            if isinstance(parameter, click.Argument) and text != place and found.parameter in \
                    found.command.params and _comes_later(found, parameter):
                arguments.append(text)
            continue
        if isinstance(parameter, click.Argument):
            arguments.append(text)
        else:
            options.append(f"{parameter.opts[0]}={text}" if parameter.opts[0].startswith("--")
                           else f"{parameter.opts[0]}{text}")
    return [*found.path, *options, "--", *arguments]


def _comes_later(found: Found, parameter: click.Parameter) -> bool:
    """Tell whether the parameter that is tried is an argument behind this one."""
    order = [each for each in found.command.params if isinstance(each, click.Argument)]
    return found.parameter in order and order.index(found.parameter) > order.index(parameter)
