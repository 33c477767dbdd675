"""``multiraft node ...``: the server's own commands, found by the CLI through its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import click

_NOT_CLEARED = ("dry run: nothing was changed. A copy lacks votes and acknowledgements: if the "
                "refusal is right, clearing it can lose records that were acknowledged, on all "
                "nodes. A restored copy returns as a new node: empty the directory and join. "
                "Only when this directory is the newest that there is of this node, and what a "
                "later one acknowledged may be lost: --accept-data-loss")


@click.group("node")
def node_group() -> None:
    """Run a storage node."""


_config_option = click.option("--config", "config_path", required=True,
                              type=click.Path(dir_okay=False, path_type=Path),
                              help="The node's configuration, node.toml.")
_join_option = click.option("--join", metavar="HOST:PORT,...", default=None,
                            help="Client addresses of the cluster to join, when the data directory "
                                 "is new.")


@node_group.command("init")
@_config_option
@_join_option
def init(config_path: Path, join: str | None) -> None:
    """Check the configuration and give the data directory its identity, once.

    Without --join it becomes a node of the new cluster that [cluster] describes.
    """
    from node import main  # imported here, so that other commands of the CLI start fast

    sys.exit(main.init(config_path, _servers(join)))


@node_group.command("start")
@_config_option
@_join_option
@click.option("--log-format", type=click.Choice(("json", "text")), default="json",
              show_default=True, help="JSON for machines, text for a terminal.")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")),
              default="info", show_default=True, help="Minimum level that is logged.")
def start(config_path: Path, join: str | None, log_format: str, log_level: str) -> None:
    """Run a node in the foreground until SIGTERM or SIGINT.

    Exit codes: 0 clean shutdown, 2 bad configuration, 3 the data directory has no identity, is in
    use, is not what the cluster knows of this node, or was refused before, 4 the disk failed.
    """
    from node import main

    sys.exit(main.run(config_path, log_format, log_level, _servers(join)))


@node_group.command("recover-metadata")
@click.option("--config", "config_path", required=True,
              type=click.Path(dir_okay=False, path_type=Path),
              help="The configuration of the node that keeps its replica; it must not run.")
@click.option("--accept-data-loss", is_flag=True,
              help="Recover. Metadata that only the lost replicas had are lost permanently.")
def recover_metadata(config_path: Path, accept_data_loss: bool) -> None:
    """Recover the metadata group from this node, after its majority was lost permanently.

    Compare the output of this command on each remaining node, and choose the one with the highest
    last term, then the highest last index. Without --accept-data-loss nothing is changed, and the
    exit code is 1. Afterwards start the node, and add members: multiraft group members 0
    --add-learner NODE.
    """
    from node.main import recover_metadata as run  # imported here: see ``init``

    sys.exit(run(config_path, accept_data_loss))


@node_group.command("clear-refusal")
@click.option("--config", "config_path", required=True,
              type=click.Path(dir_okay=False, path_type=Path),
              help="The configuration of the node that was refused; it must not run.")
@click.option("--accept-data-loss", is_flag=True,
              help="Clear the refusal. Records that later starts of this node acknowledged, from "
                   "another copy of the directory, may be lost permanently.")
def clear_refusal(config_path: Path, accept_data_loss: bool) -> None:
    """Allow a data directory to start again after the cluster refused it.

    A directory that was restored to an older copy, or is used beside the original, is refused at
    its start and marked, and later starts fail without asking the cluster. The way back is a new
    node on an empty directory. Use this command only if the refusal was wrong. Without
    --accept-data-loss it prints the reason of the refusal and changes nothing, and the exit code
    is 1.
    """
    from node import data_directory  # imported here: see ``init``
    from node.errors import NodeError

    try:
        config, record = data_directory.refused_before(config_path)
        if record is None:
            click.echo(f"{config.data_dir} is not marked as refused: nothing to clear")
            return
        click.echo(f"{config.data_dir} was refused: {record.reason}")
        if not accept_data_loss:
            click.echo(_NOT_CLEARED, err=True)
            sys.exit(1)
        data_directory.clear_refusal(config, record)
    except NodeError as error:
        click.echo(f"multiraft node: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo("the refusal was cleared; the node may be started")


def _servers(text: str | None) -> list[str]:
    """Split a list of servers. Raises ``click.BadParameter`` for a list without any, such as an
    unset variable: without servers the directory would become a node of a new cluster."""
    servers = [server.strip() for server in (text or "").split(",") if server.strip()]
    if text is not None and not servers:
        raise click.BadParameter("it names no server", param_hint="'--join'")
    return servers
