"""Failures of a command: one sentence about the cause, one about the remedy, one exit code.

Contract.  Commands raise `CommandFailed` (or a subclass); click shows it and exits with its code.
The codes are part of the interface: `docs/cli.md` lists them, scripts rely on them.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from admin_cli.values.text import printable

if TYPE_CHECKING:
    from typing import IO


class ExitCode(enum.IntEnum):
    """Exit codes, for scripts."""

    OK = 0
    FAILED = 1  # the cluster or the machine refused; nothing is ambiguous
    USAGE = 2  # the command line itself is wrong (click uses the same code)
    UNREACHABLE = 3  # nothing answered, or not in time: there was no leader
    NOT_FOUND = 4  # the topic, group or node named does not exist
    AMBIGUOUS = 5  # it may or may not have happened
    INCOMPLETE = 6  # a read stopped before its end: an open transaction, or deleted records
    UNHEALTHY = 10  # the cluster answered, and is not healthy (rpk uses the same code)
    INTERRUPTED = 130  # Ctrl-C, the shells' 128 + SIGINT


#: ``ExitCode.USAGE`` of commands that make plans: 2 says there that there was nothing to do.
PLAN_USAGE = 64


class CommandFailed(click.ClickException):
    """The command could not do what was asked.

    ``what`` says what failed and why, ``do`` names the remedy; both without a final newline.
    """

    def __init__(self, what: str, do: str = "", exit_code: int = ExitCode.FAILED):
        super().__init__(what)
        self.do = do
        self.exit_code = int(exit_code)  # type: ignore[misc]  # click reads it of the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the error and the lines of its remedy to standard error, control characters
        escaped."""
        click.echo(printable(f"Error: {self.message}"), file=file, err=True)
        for line in self.do.splitlines():
            click.echo(printable(f"  {line}"), file=file, err=True)


class NotFound(CommandFailed):
    """The topic, group or node that was named does not exist."""

    def __init__(self, what: str, do: str = ""):
        super().__init__(what, do, ExitCode.NOT_FOUND)


class Unreachable(CommandFailed):
    """No node answered, or none in time: no leader was known, or a change was not complete."""

    def __init__(self, what: str, do: str = ""):
        super().__init__(what, do, ExitCode.UNREACHABLE)


class Incomplete(CommandFailed):
    """A read stopped before its end."""

    def __init__(self, what: str, do: str = ""):
        super().__init__(what, do, ExitCode.INCOMPLETE)


class Ambiguous(CommandFailed):
    """The outcome is not known."""

    def __init__(self, what: str, do: str = ""):
        super().__init__(what, do, ExitCode.AMBIGUOUS)


class Interrupted(click.ClickException):
    """Ctrl-C.  ``do`` says what continues without the command, and the commands for it."""

    exit_code = int(ExitCode.INTERRUPTED)

    def __init__(self, do: str = "") -> None:
        super().__init__("interrupted")
        self.do = do

    def show(self, file: IO[Any] | None = None) -> None:
        """Write one word to standard error, and the lines of ``do``."""
        for line in (self.message, *self.do.splitlines()):
            click.echo(printable(line), file=file, err=True)


@contextlib.contextmanager
def told_if_interrupted(do: str) -> Iterator[None]:
    """Let Ctrl-C in the body leave as ``Interrupted`` with ``do``."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(do) from error


def reason(error: OSError) -> str:
    """Return the system's reason, to be put into a sentence: ``no space left on device``."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def of_this_machine(error: OSError) -> CommandFailed:
    """Return the ``CommandFailed`` for an error of this machine's own system calls; it names the
    file if the error does."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2)
             if isinstance(name, (str, bytes))]
    return CommandFailed(f"{' -> '.join(names)}: {reason(error)}." if names else
                         f"{reason(error)}.")
