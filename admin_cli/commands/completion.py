"""`multiraft completion`: shell completion of commands, flags and topics."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from admin_cli.console.help_pages import HelpfulCommand
from admin_cli.console.options import Word
from admin_cli.console.output import say
from admin_cli.failures import CommandFailed, ExitCode

#: Shell -> the line that enables completion permanently.
INSTALL = {
    "bash": "mkdir -p ~/.local/share/bash-completion/completions && multiraft completion bash"
            " > ~/.local/share/bash-completion/completions/multiraft",
    "zsh": "echo 'eval \"$(multiraft completion zsh)\"' >> ~/.zshrc",
    "fish": "multiraft completion fish > ~/.config/fish/completions/multiraft.fish",
}
VARIABLE = "_MULTIRAFT_COMPLETE"


@click.command(cls=HelpfulCommand)
@click.argument("shell", type=Word(tuple(INSTALL)), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the completion script for SHELL; without SHELL explain how to install it.

    Topics are completed too: names come from the cluster that commands would talk to.
    """
    if shell is None:
        say(_instructions(Path(os.environ.get("SHELL", "")).name))
        return
    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(ctx.find_root().command, {}, "multiraft", VARIABLE)
    try:
        say(script.source())
    except RuntimeError as error:  # bash is missing or older than 4.4
        raise CommandFailed(str(error), "Use zsh, fish or a newer bash.",
                            ExitCode.FAILED) from error


def _instructions(shell: str) -> str:
    if shell in INSTALL:
        return f"Run this once, then start a new {shell}:\n\n    {INSTALL[shell]}"
    lines = [f"{name:5} {line}" for name, line in INSTALL.items()]
    return "Run the line of your shell once, then start a new one:\n\n    " + "\n    ".join(lines)
