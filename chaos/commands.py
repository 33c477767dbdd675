"""``multiraft chaos ...``: fault injection; the CLI finds the group through its entry point."""

from __future__ import annotations

import importlib

import click

#: command -> its module, and its line in the help; imported late, because each needs other packages
#: (trio, docker, the simulator).
COMMANDS = {
    "run": ("chaos.run.command:run_command", "Load and faults against real nodes, judged."),
    "report": ("chaos.report.command:report_command", "Build the page of a run."),
    "sim": (
        "chaos.simulator.runner.command:simulate",
        "Simulate whole clusters, from one seed each.",
    ),
    "faults": ("chaos.nemeses.command:faults", "Prove each fault that this machine can inject."),
    "planted": ("chaos.planted.command:planted", "Plant known bugs; prove that they are caught."),
    "check": ("chaos.checkers.command:check_command", "Judge the folder of a run again."),
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
    """Inject faults into simulated clusters, processes and containers, and check the results."""
