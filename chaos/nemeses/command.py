"""``multiraft chaos faults``: prove each fault that this machine can inject."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import click

from chaos.backends.backend import KINDS, Backend, BackendError, ClusterSpec
from chaos.backends.choice import BACKENDS, open_backend
from chaos.nemeses.proofs import PROOFS, NoBite


@click.command("faults")
@click.option("--backend", type=click.Choice(sorted(BACKENDS)), default="process",
              show_default=True, help="Where the nodes run.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True,
              help="Only this kind of fault; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per kind.")
def faults(backend: str, kinds: tuple[str, ...], as_json: bool) -> None:
    """Inject every fault once into a small cluster, and check from outside that it has its effect
    and ends.

    Exit codes: 0 all faults have their effect, 1 one has not, 2 no such cluster on this machine.
    Kinds that the machine cannot inject are named and are no failure.
    """
    states = []
    with tempfile.TemporaryDirectory(prefix="multiraft-faults-") as directory:
        try:
            cluster = open_backend(backend, Path(directory, "cluster"), ClusterSpec(groups=4))
            with cluster:
                cluster.up()
                for kind in kinds or KINDS:
                    state, text = _prove(cluster, kind)
                    _show(kind, state, text, as_json)
                    states.append(state)
        except BackendError as error:
            click.echo(f"multiraft chaos: {error}", err=True)
            sys.exit(2)
    sys.exit(1 if "does nothing" in states else 0)


def _prove(cluster: Backend, kind: str) -> tuple[str, str]:
    if kind in cluster.left_out:
        return "left out", cluster.left_out[kind]
    cluster.await_whole()
    begin_s = time.monotonic()
    try:
        seen = PROOFS[kind](cluster)
    except (NoBite, BackendError) as error:
        cluster.heal_all()
        return "does nothing", str(error)
    return "bites", f"{seen} ({time.monotonic() - begin_s:.1f} s)"


def _show(kind: str, state: str, text: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"kind": kind, "state": state, "text": text}))
    else:
        click.echo(f"{kind:<12} {state:<13} {text}")
