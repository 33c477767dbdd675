"""``multiraft node ...``: the server's own commands, found by the CLI through its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group("node")
def node_group() -> None:
    """Run a storage node."""


@node_group.command("start")
@click.option("--config", "config_path", required=True,
              type=click.Path(dir_okay=False, path_type=Path),
              help="The node's configuration, node.toml.")
@click.option("--log-format", type=click.Choice(("json", "text")), default="json",
              show_default=True, help="JSON for machines, text for a terminal.")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")),
              default="info", show_default=True, help="The least level that is written.")
def start(config_path: Path, log_format: str, log_level: str) -> None:
    """Run a node in the foreground until SIGTERM or SIGINT.

    Exit codes: 0 stopped in order, 2 bad configuration, 3 the data directory is in use or belongs
    to another node or cluster, 4 the disk failed.
    """
    from node.main import run  # the server's imports are not the CLI's price

    sys.exit(run(config_path, log_format, log_level))
