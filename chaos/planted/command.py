"""``multiraft chaos planted``: runs the proof of every planted bug, which has to catch it.

Contract.  One line per bug as it is done; ``--json`` prints one array instead and the lines go to
standard error.  Exit code 0 when every requested bug was caught, 1 otherwise: a proof that could
not run catches nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

import click

from chaos.planted import proofs
from chaos.planted.bug import LAYERS, Bug, StaleBug
from chaos.planted.catalogue import BUGS
from chaos.planted.proofs import Finding, NoProof
from chaos.ranges import Whole


@click.command("planted", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", "names", multiple=True, type=click.Choice(sorted(BUGS)), metavar="NAME",
              help="Only this bug; may be given again.")
@click.option("--layer", "layers", multiple=True, type=click.Choice(LAYERS),
              help="Only this layer, also for bugs that a cheaper one catches; may be given again.")
@click.option("--jobs", type=Whole(1, 64), default=1, show_default=True,
              help="Proofs that run at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--list", "only_list", is_flag=True, help="List the bugs, and run nothing.")
def planted(names: Sequence[str], layers: Sequence[str], jobs: int, as_json: bool,
            only_list: bool) -> None:
    """Plant each known bug in turn and run the proof of the layer that has to catch it."""
    tasks = [(bug, layer) for bug in BUGS.values() if not names or bug.name in names
             for layer in (layers or (bug.layer,)) if bug.proof_in(layer) is not None]
    if not tasks:
        raise click.UsageError("there is no such bug in these layers")
    if only_list:
        for bug, layer in tasks:
            click.echo(f"{layer:<10} {bug.name:<36} {bug.why}")
        return
    findings = []
    for finding in _findings(tasks, jobs):
        findings.append(finding)
        click.echo(f"[{len(findings):>{len(str(len(tasks)))}}/{len(tasks)}] "
                   f"{'caught' if finding.caught else 'MISSED'} {finding.layer:<10}"
                   f"{finding.seconds:7.1f} s  {finding.bug:<36} {finding.by}", err=as_json)
    missed = [finding.bug for finding in findings if not finding.caught]
    if as_json:
        click.echo(json.dumps([finding.to_json() for finding in findings], indent=1))
    click.echo(f"{len(findings) - len(missed)} of {len(findings)} planted bugs caught"
               + (f"; missed: {', '.join(missed)}" if missed else ""), err=as_json)
    sys.exit(1 if missed else 0)


def _findings(tasks: Sequence[tuple[Bug, str]], jobs: int) -> Iterator[Finding]:
    """Yield the finding of each bug as it becomes known; one whose proof could not run is not
    caught.  While a bug is planted, its process runs no other proof, so that bugs do not interact.

    Raises ``click.ClickException`` at the end if a test fails without any bug.
    """
    ids = dict.fromkeys(each for bug, layer in tasks for each in proofs.tests_of(bug, layer))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        sound = pool.submit(proofs.check_tests, tuple(ids))
        found: dict[Future[Finding], tuple[Bug, str]] = {
            pool.submit(proofs.prove, bug, layer): (bug, layer) for bug, layer in tasks}
        for future in as_completed(found):
            bug, layer = found[future]
            try:
                yield future.result()
            except (NoProof, StaleBug) as error:
                yield Finding(bug.name, False, layer, 0.0, f"no proof: {error}")
        try:
            sound.result()
        except NoProof as error:
            raise click.ClickException(str(error)) from error
