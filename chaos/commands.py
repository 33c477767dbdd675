"""``multiraft chaos ...``: fault injection; the CLI finds the group through its entry point."""

from __future__ import annotations

import importlib

import click

#: command -> its module, and its line in the help; imported late, because each needs other packages
#: (trio, docker, the simulator).
COMMANDS = {
    "run": ("chaos.run.command:run_command", "A cluster of real nodes: load, faults, a verdict."),
    "report": ("chaos.report.command:report_command", "The page of a run."),
    "sim": (
        "chaos.simulator.runner.command:simulate",
        "Whole clusters simulated, from one seed each.",
    ),
    "faults": ("chaos.nemeses.command:faults", "Which faults can be caused here, each proven."),
    "planted": ("chaos.planted.command:planted", "Known mistakes planted, to see them caught."),
    "check": ("chaos.checkers.command:check_command", "The verdict on a run's folder."),
}


class _Late(click.Group):
    """Commands from a table, imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group("chaos", cls=_Late)
def chaos_group() -> None:
    """Break it on purpose: simulated clusters, real processes and containers, and checkers."""
