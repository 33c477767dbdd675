"""Launcher of the ``multiraft`` command with planted bugs, a shifted clock and other file sizes.

    python -m chaos.launcher [--planted NAME ...] [--clock FILE] [--storage NAME=BYTES ...] \
        -- node start --config node.toml

Contract.  The arguments after ``--`` are those of ``multiraft``: same output, same exit code, same
process.  Before it runs, the bugs of ``--planted`` are patched into the code
(``chaos.planted.bug``), with ``--clock`` the node's clock follows a file (``chaos.shifted_clock``),
and with ``--storage`` files have other sizes, so that segments leave within a short run.  The
released packages contain no switch for these: modules are patched from here, by name, before
anything else of theirs runs.

A node's modules take the functions of ``node.clock`` when they are imported, so the clock is
replaced below those, in ``node.clock`` alone, and first of all.  Timeouts of the event loop are not
the node's clock; they continue as before, as in a machine that was suspended for some seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.planted import bug
from chaos.planted.catalogue import BUGS
from chaos.shifted_clock import ShiftedClock
from multiraft.errors import ConfigError

#: The only reader of time in a node, and the module that is the ``multiraft`` command.
CLOCK_MODULE, COMMAND_MODULE = "node.clock", "admin_cli"
#: The module whose store has the sizes of files.
STORE_MODULE = "multiraft.storage.store"


class TooLate(Exception):
    """Raised when modules have already imported the clock that is to be replaced."""


def command_line(command: Sequence[str], planted: Sequence[str] = (),
                 clock: Path | None = None) -> list[str]:
    """Return the command that starts a process which runs ``multiraft COMMAND`` with these bugs
    planted. Its clock follows the file ``clock``, if one is named."""
    options = [word for name in planted for word in ("--planted", name)]
    options += ["--clock", str(clock)] if clock is not None else []
    # -P: a directory `node/` in the working directory of the process is not our package.
    return [sys.executable, "-P", "-m", "chaos.launcher", *options, "--", *command]


def shift_clock(path: Path) -> ShiftedClock:
    """Replace the clock of the node in this process by one that follows ``path``, and return it.
    Raises ``TooLate`` when a module of the node has been imported, which may have taken the true
    one; ``OSError`` or ``BadShift`` for the file."""
    if any(name.startswith("node.") for name in sys.modules):
        raise TooLate("modules of the node were imported before its clock was replaced")
    module = importlib.import_module(CLOCK_MODULE)
    clock = ShiftedClock(path)
    clock.monotonic_ns()  # reports a missing file now instead of later
    # ``time`` of that module alone; ``monotonic_ns`` is the one function that it took from it.
    vars(module).update(time=clock, monotonic_ns=clock.monotonic_ns)
    return clock


def set_sizes(sizes: Mapping[str, int]) -> None:
    """Replace the ``StorageConfig`` that ``Store.open`` has without an argument: field -> number.
    Raises ``ConfigError`` for a field that there is not, and for sizes that contradict each
    other."""
    opened = vars(importlib.import_module(STORE_MODULE).Store)["open"].__func__
    config, *others = opened.__defaults__
    names = [each.name for each in dataclasses.fields(config)]
    unknown = sorted(set(sizes) - set(names))
    if unknown:
        raise ConfigError(f"{unknown[0]} is no size of files: {', '.join(names)}")
    opened.__defaults__ = (dataclasses.replace(config, **sizes).validate(), *others)


def size(text: str) -> tuple[str, int]:
    """Return the name and the number of NAME=BYTES.  Raises ``ValueError``."""
    name, _, number = text.partition("=")
    return name, int(number)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``python -m chaos.launcher`` with these arguments, those of the process if None: plant
    the bugs, shift the clock, set the sizes, then run the command. Ends as ``multiraft`` ends."""
    if not __debug__:
        sys.exit("chaos.launcher: refuses to run with python -O: a node's assertions are part of "
                 "its safety")
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, command = (words[:words.index("--")], words[words.index("--") + 1:]) \
        if "--" in words else (words, [])
    parser = argparse.ArgumentParser(
        prog="python -m chaos.launcher", usage="%(prog)s [options] -- COMMAND ...",
        description="Run `multiraft COMMAND ...` with bugs planted, a clock that jumps, or files "
                    "of other sizes.")
    parser.add_argument("--planted", action="append", default=[], metavar="NAME",
                        choices=sorted(BUGS), help="plant this bug; may be given again")
    parser.add_argument("--clock", type=Path, metavar="FILE",
                        help="the node's clock is off by what this file says")
    parser.add_argument("--storage", action="append", default=[], metavar="NAME=BYTES", type=size,
                        help="a field of StorageConfig; may be given again")
    chosen = parser.parse_args(own)
    if not command:
        parser.error("the command to run is missing; it follows --")
    if chosen.clock is not None:
        shift_clock(chosen.clock)
    if chosen.storage:
        set_sizes(dict(chosen.storage))
    for name in chosen.planted:
        bug.plant(BUGS[name])
    sys.argv = ["multiraft", *command]
    runpy.run_module(COMMAND_MODULE, run_name="__main__")


if __name__ == "__main__":
    main()
