"""The cluster that a command talks to.

Contract.  First of: `--servers`, the environment's MULTIRAFT_SERVERS, the development cluster that
`dev_choice` finds.  `Servers.source` tells which of them it was, to explain errors such as
"connection refused".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from admin_cli.development import dev_choice, dev_state
from admin_cli.failures import CommandFailed, ExitCode, Unreachable
from multiraft.wire.addresses import split_address

VARIABLE = "MULTIRAFT_SERVERS"
#: Addresses in one list; a client needs one that is alive, so longer lists are errors.
SERVERS_MAX = 64
#: Characters of an address, as the wire has it.
ADDRESS_MAX = 300
_EXAMPLE = "Write HOST:PORT[,HOST:PORT...], for example 127.0.0.1:9101,127.0.0.1:9102."


@dataclass(frozen=True, slots=True)
class Servers:
    """Client addresses to try, and their source."""

    addresses: tuple[str, ...]
    source: str  # completes "... (from <source>)"
    dev_directory: Path | None = None  # set when they came from a development cluster


def tls_variable(name: str) -> str:
    """Return the environment's name of a TLS option: tls_ca -> MULTIRAFT_TLS_CA."""
    return f"MULTIRAFT_{name.upper()}"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS settings: paths of files, and the name in nodes' certificates."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""


def find_tls(options: Mapping[str, str | bool], environ: Mapping[str, str]) -> TlsOptions | None:
    """Return the TLS settings, each from the command line or else from the environment; None =
    without TLS."""
    said = {name: options.get(name) or environ.get(tls_variable(name), "")
            for name in ("tls", "tls_ca", "tls_cert", "tls_key", "tls_server_name")}
    if said["tls"] in ("", "0") and not any(said[name] for name in said if name != "tls"):
        return None
    ca, certificate, key, server_name = (
        str(said[name]) for name in ("tls_ca", "tls_cert", "tls_key", "tls_server_name"))
    return TlsOptions(ca, certificate, key, server_name)


def parse_addresses(text: str, source: str) -> tuple[str, ...]:
    """Return ``HOST:PORT[,HOST:PORT...]`` as a tuple.  Raises ``CommandFailed`` naming the bad one.
    """
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    if not addresses:
        raise CommandFailed(f"{source} names no server.", _EXAMPLE, ExitCode.USAGE)
    if len(addresses) > SERVERS_MAX:
        raise CommandFailed(f"{source} names {len(addresses)} servers, the limit is {SERVERS_MAX}.",
                            "One that is alive is enough.", ExitCode.USAGE)
    for address in addresses:
        found = split_address(address) if len(address) <= ADDRESS_MAX else None
        if found is None or not found[1]:
            shown = address if len(address) <= ADDRESS_MAX else f"{address[:ADDRESS_MAX]}..."
            raise CommandFailed(f"{shown!r} in {source} is not HOST:PORT.", _EXAMPLE,
                                ExitCode.USAGE)
    return addresses


def find_servers(option: str | None, environ: Mapping[str, str]) -> Servers:
    """Return the cluster to talk to: by ``option``, the environment, or a development cluster.
    Raises ``Unreachable`` when nothing names one, ``CommandFailed`` for a bad address."""
    if option is not None:
        return Servers(parse_addresses(option, "--servers"), "--servers")
    if environ.get(VARIABLE):
        return Servers(parse_addresses(environ[VARIABLE], VARIABLE), VARIABLE)
    chosen = dev_choice.find(environ)
    if chosen.directory is None:
        raise Unreachable(f"no cluster is named by --servers or {VARIABLE}, and there is no "
                          f"development cluster in ./{dev_state.DEFAULT_DIRECTORY} or started "
                          "before.", "Start one with `multiraft dev up`, or name one with "
                                     f"--servers HOST:PORT[,...] or {VARIABLE}.")
    record = dev_state.load(chosen.directory)
    return Servers(tuple(node.client_address
                         for node in dev_state.remaining(chosen.directory, record)),
                   f"the development cluster in {chosen.directory}, {chosen.how}",
                   chosen.directory)
