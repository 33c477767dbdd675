"""The context of one invocation of the command: the cluster and the access to it.

Contract.  The root command makes one and hands it down as click's ``obj``; tests pass their own.
Importing this imports no client: Tab and `--help` are fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admin_cli.servers import Servers, TlsOptions, find_servers, find_tls

Connect = Callable[[Sequence[str]], Any]  # client addresses -> a client, used with `with`
NodeCommand = Callable[..., Sequence[str]]  # node.toml, "start" or "init", options -> command line


@dataclass(slots=True)
class Session:
    """The context of an invocation.

    ``connect`` and ``node_command`` None mean the real client and the real node; ``servers_option``
    is the value of --servers, ``tls_options`` those of the --tls... flags; ``pause`` waits so many
    seconds.
    """

    environ: Mapping[str, str]
    connect: Connect | None = None
    servers_option: str | None = None
    node_command: NodeCommand | None = None
    pause: Callable[[float], None] = time.sleep
    tls_options: dict[str, str | bool] = field(default_factory=dict)

    def servers(self) -> Servers:
        """Return the cluster to talk to.  Raises ``CommandFailed`` when nothing names one."""
        return find_servers(self.servers_option, self.environ)

    def tls(self) -> TlsOptions | None:
        """Return the TLS settings; None = without TLS."""
        return find_tls(self.tls_options, self.environ)
