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


@node_group.command("recover-metadata")
@click.option("--config", "config_path", required=True,
              type=click.Path(dir_okay=False, path_type=Path),
              help="The configuration of the node whose replica is to go on; it must not run.")
@click.option("--accept-data-loss", is_flag=True,
              help="Do it. Metadata that only the lost replicas had are gone for good.")
def recover_metadata(config_path: Path, accept_data_loss: bool) -> None:
    """Go on with the metadata group from this node, when its majority is lost for good.

    Compare what this says on each node that is left, and take the one with the highest last term,
    then the highest last index. Without --accept-data-loss nothing is changed, and the exit code is
    1. Afterwards start the node, and add members: multiraft group members 0 --add-learner NODE.
    """
    from node.main import recover_metadata as run  # the server's imports are not the CLI's price

    sys.exit(run(config_path, accept_data_loss))
