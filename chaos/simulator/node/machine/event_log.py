"""Log of the product's parts in one boot: events are counted and traced."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.simulator.node.machine.env import NodeEnv


class TraceLog:
    """Receiver of log events, as ``node.event_log.EventLog``."""

    def __init__(self, env: NodeEnv):
        self._env = env

    def info(self, event: str, *, extra: Mapping[str, object]) -> None:
        """Count and trace an event."""
        self._env.event_counts[f"logged {event}"] += 1
        group = extra.get("group", -1)
        fields = " ".join(f"{name}={value}" for name, value in extra.items() if name != "group")
        self._env.trace_line(event, fields, group if isinstance(group, int) else -1)

    warning = info
