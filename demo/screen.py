"""Screen of the demo: a live panel on a terminal, plain lines elsewhere.

Contract.  `Screen` receives facts (`stage`, `event`, `node_state`, `advance`) from any thread and
draws them on its own; no caller waits for the display.  Lines of `event` stay on the screen when it
closes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

#: Redraws per second: smooth to the eye, cheap for a machine that also runs three nodes.
FRAMES_PER_S = 8
#: Without a terminal: one line of progress per so many seconds.
LINE_INTERVAL_S = 2.0
#: Wide enough for every printed line.
PIPE_COLUMNS = 120
#: Span over which the rate is measured.
RATE_WINDOW_S = 1.0
#: Samples of the rate window: one per frame and some to spare.
RATE_SAMPLES = 64

STATE_STYLES = {"up": "green", "down": "bold red", "starting": "yellow"}


class Screen:
    """A context manager that draws facts; facts may arrive before and after its block."""

    def __init__(self, console: Console | None = None):
        # A pipe has no width: lines printed there must not be cut at a default one.
        width = None if sys.stdout.isatty() else PIPE_COLUMNS
        self.console = console or Console(highlight=False, width=width)
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._stage, self._done, self._total, self._unit = "starting", 0, 0, ""
        self._details = ""
        self._nodes: dict[int, str] = {}
        self._samples: deque[tuple[float, int]] = deque(maxlen=RATE_SAMPLES)
        self._next_line = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(self, console=self.console, refresh_per_second=FRAMES_PER_S,
                              transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, value, trace)
            self._live = None

    @property
    def elapsed_s(self) -> float:
        """Return seconds since the demo began."""
        return time.monotonic() - self._started

    def stage(self, name: str, total: int = 0, unit: str = "") -> None:
        """Begin a stage of ``total`` units; 0 = a stage without a measure, which shows that it
        lasts."""
        with self._lock:
            self._stage, self._done, self._total, self._unit = name, 0, total, unit
            self._details = ""
            self._samples.clear()
        if not total and not self.console.is_terminal:
            self.event(name)

    def advance(self, done: int, details: str = "") -> None:
        """Show the progress of the stage."""
        now = time.monotonic()
        with self._lock:
            self._done, self._details = done, details
            if not self._samples or now - self._samples[-1][0] > 1 / FRAMES_PER_S:
                self._samples.append((now, done))
        if not self.console.is_terminal and now >= self._next_line:
            self._next_line = now + LINE_INTERVAL_S
            self.console.print(f"{self.elapsed_s:6.1f} s  {self._describe()}", soft_wrap=True)

    def event(self, text: str, style: str = "") -> None:
        """Show an event with its time."""
        line = Text.assemble((f"{self.elapsed_s:6.1f} s  ", "dim"), (text, style))
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def node_state(self, node: int, state: str) -> None:
        """Show that a node is up, down or starting."""
        with self._lock:
            self._nodes[node] = state

    def _rate(self) -> float:
        recent = [(at, done) for at, done in self._samples
                  if self._samples[-1][0] - at <= RATE_WINDOW_S]
        if len(recent) < 2 or recent[-1][0] == recent[0][0]:
            return 0.0
        return (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])

    def _amount(self, of: str) -> str:
        """Return the units that are done and their total; empty for a stage without a measure."""
        return f"{self._done:,}{of}{self._total:,} {self._unit}".rstrip() if self._total else ""

    def _describe(self) -> str:
        amount = self._amount(" of ")
        parts = [f"{self._stage}: {amount}" if amount else self._stage]
        if self._unit == "records":
            parts.append(f"{self._rate():,.0f}/s")
        if self._details:
            parts.append(self._details)
        down = [str(node) for node, state in sorted(self._nodes.items()) if state != "up"]
        if down:
            parts.append(f"not up: node {', '.join(down)}")
        return ", ".join(parts)

    def __rich__(self) -> Group:
        with self._lock:
            bar = Table.grid(padding=(0, 2))
            bar.add_row(Text(self._stage, style="bold"),
                        ProgressBar(total=self._total or None, completed=self._done, width=36,
                                    pulse=not self._total, animation_time=time.monotonic()),
                        self._amount(" / ") or f"{self.elapsed_s:.0f} s",
                        f"{self._rate():,.0f}/s" if self._unit == "records" else "")
            lines: list[RenderableType] = [bar]
            if self._details:
                lines.append(Text(self._details, style="dim"))
            if self._nodes:
                nodes = Text("nodes  ")
                for node, state in sorted(self._nodes.items()):
                    nodes.append(f"● {node} {state}   ", STATE_STYLES[state])
                lines.append(nodes)
            return Group(*lines)
