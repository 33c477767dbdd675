"""`multiraft chaos report DIR`: rebuilds the page of a run, and serves it on loopback if
requested."""

from __future__ import annotations

import functools
import http.server
from pathlib import Path

import click

from admin_cli import extras
from chaos.ranges import Whole
from chaos.report import REPORT_PACKAGES

LOOPBACK = "127.0.0.1"


@click.command("report")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--serve", is_flag=True, help="Serve the folder on loopback until interrupted.")
@click.option("--port", type=Whole(0, 65535), default=0, show_default=True,
              help="With --serve; 0 = any free one.")
def report_command(directory: Path, serve: bool, port: int) -> None:
    """Build the page of the run in DIRECTORY and print its path."""
    extras.require("chaos", *REPORT_PACKAGES)
    from chaos.report.build import NoHistory, build  # packages of an extra

    try:
        page = build(directory)
    except NoHistory as error:
        raise click.ClickException(str(error)) from error
    if not serve:
        click.echo(page)
        return
    with server(directory, port) as listening:
        click.echo(f"http://{LOOPBACK}:{listening.server_port}/{page.name}")
        try:
            listening.serve_forever()
        except KeyboardInterrupt:
            click.echo("")


def server(directory: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Return a server of the folder over HTTP, for this machine only; ``port`` 0 = any free one."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    return http.server.ThreadingHTTPServer((LOOPBACK, port), handler)
