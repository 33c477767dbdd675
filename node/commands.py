"""``multiraft node ...``: the server's own commands, found by the CLI through its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group("node")
def node_group() -> None:
    """Run a storage node."""


_config_option = click.option("--config", "config_path", required=True,
                              type=click.Path(dir_okay=False, path_type=Path),
                              help="The node's configuration, node.toml.")
_join_option = click.option("--join", metavar="HOST:PORT,...", default="",
                            help="Client addresses of the cluster to join, when the data directory "
                                 "is new.")


@node_group.command("init")
@_config_option
@_join_option
def init(config_path: Path, join: str) -> None:
    """Check the configuration and give the data directory its identity, once.

    Without --join it becomes a node of the new cluster that [cluster] describes.
    """
    from node import main  # the server's imports are not the CLI's price

    sys.exit(main.init(config_path, _servers(join)))


@node_group.command("start")
@_config_option
@_join_option
@click.option("--log-format", type=click.Choice(("json", "text")), default="json",
              show_default=True, help="JSON for machines, text for a terminal.")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")),
              default="info", show_default=True, help="The least level that is written.")
def start(config_path: Path, join: str, log_format: str, log_level: str) -> None:
    """Run a node in the foreground until SIGTERM or SIGINT.

    Exit codes: 0 stopped in order, 2 bad configuration, 3 the data directory has no identity, is in
    use, or is not what the cluster knows of this node, 4 the disk failed.
    """
    from node import main

    sys.exit(main.run(config_path, log_format, log_level, _servers(join)))


def _servers(text: str) -> list[str]:
    return [server.strip() for server in text.split(",") if server.strip()]
