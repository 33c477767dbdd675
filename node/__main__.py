"""``python -m node start --config node.toml``."""

import argparse
import sys
from pathlib import Path

if not __debug__:
    sys.exit("multiraft node: refuses to run with python -O: assertions are part of its safety")

# The refusal above comes first.
from node.main import init, run  # noqa: E402
from node.observability.logging import FORMATS, LEVELS  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Run the command of ``arguments`` and return the exit code."""
    parser = argparse.ArgumentParser(prog="multiraft node")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("start", "run a node in the foreground"),
                       ("init", "give a data directory its identity")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--config", type=Path, required=True)
        command.add_argument("--join", default=None, metavar="HOST:PORT[,...]")
        command.add_argument("--log-format", choices=FORMATS, default="json")
        command.add_argument("--log-level", choices=LEVELS, default="info")
    chosen = parser.parse_args(arguments)
    servers = [server for server in (chosen.join or "").split(",") if server]
    if chosen.join is not None and not servers:
        parser.error("--join names no server")
    if chosen.command == "init":
        return init(chosen.config, servers)
    return run(chosen.config, chosen.log_format, chosen.log_level, servers)


if __name__ == "__main__":
    sys.exit(main())
