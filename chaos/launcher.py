"""Launcher of the ``multiraft`` command with planted bugs and a shifted clock.

    python -m chaos.launcher [--planted NAME ...] [--clock FILE] -- node start --config node.toml

Contract.  The arguments after ``--`` are those of ``multiraft``: same output, same exit code, same
process.  Before it runs, the bugs of ``--planted`` are patched into the code
(``chaos.planted.bug``), and with ``--clock`` the node's clock follows a file
(``chaos.shifted_clock``).  The released packages contain no switch for either: modules are patched
from here, by name, before anything else of theirs runs.

A node's modules take the functions of ``node.clock`` when they are imported, so the clock is
replaced below those, in ``node.clock`` alone, and first of all.  Timeouts of the event loop are not
the node's clock; they continue as before, as in a machine that was suspended for some seconds.
"""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos.planted import bug
from chaos.planted.catalogue import BUGS
from chaos.shifted_clock import ShiftedClock

#: The only reader of time in a node, and the module that is the ``multiraft`` command.
CLOCK_MODULE, COMMAND_MODULE = "node.clock", "admin_cli"


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``python -m chaos.launcher`` with these arguments, those of the process if None: plant
    the bugs, shift the clock, then run the command. Ends as ``multiraft`` ends."""
    if not __debug__:
        sys.exit("chaos.launcher: refuses to run with python -O: a node's assertions are part of "
                 "its safety")
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, command = (words[:words.index("--")], words[words.index("--") + 1:]) \
        if "--" in words else (words, [])
    parser = argparse.ArgumentParser(
        prog="python -m chaos.launcher", usage="%(prog)s [options] -- COMMAND ...",
        description="Run `multiraft COMMAND ...` with bugs planted or with a clock that jumps.")
    parser.add_argument("--planted", action="append", default=[], metavar="NAME",
                        choices=sorted(BUGS), help="plant this bug; may be given again")
    parser.add_argument("--clock", type=Path, metavar="FILE",
                        help="the node's clock is off by what this file says")
    chosen = parser.parse_args(own)
    if not command:
        parser.error("the command to run is missing; it follows --")
    if chosen.clock is not None:
        shift_clock(chosen.clock)
    for name in chosen.planted:
        bug.plant(BUGS[name])
    sys.argv = ["multiraft", *command]
    runpy.run_module(COMMAND_MODULE, run_name="__main__")


if __name__ == "__main__":
    main()
