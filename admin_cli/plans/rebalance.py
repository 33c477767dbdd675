"""`multiraft rebalance`: make, show, check and apply plans, watch and control the one under way.

Contract.  Only `apply PLAN --yes` and `plan --yes` change anything, and the controls of a plan
under way.  The metadata group stores the plan, so interrupting a command changes nothing.

Exit codes of these commands: 0 done, 2 nothing to do (of ``plan --yes`` 0: it has reached what was
asked for), 3 cannot be done, 4 the plan is stale, 5 the plan has paused itself, 1 any other
failure, 64 a wrong command line.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from admin_cli import connection
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.help_pages import HelpfulCommand
from admin_cli.console.options import TEXT, Bytes, BytesPerSecond, json_option, servers_option
from admin_cli.console.output import (
    check_file,
    note,
    plural,
    print_json,
    read_file,
    refreshed,
    write_file,
)
from admin_cli.console.streams import outlived_reader
from admin_cli.failures import PLAN_USAGE, CommandFailed, ExitCode, told_if_interrupted
from admin_cli.plans import load_view, plan_engine, plan_input, plan_left, plan_view
from admin_cli.session import Session
from admin_cli.values import quantities
from admin_cli.values.numbers import NODE, WINDOW, Real
from admin_cli.values.text import shell_word
from multiraft.wire import errors as wire_errors
from multiraft.wire import plans as wire
from placement import canonical
from placement import plan as plans
from placement.cluster import Snapshot
from placement.errors import EditedPlan, PlacementError
from placement.planner import make_plan
from placement.policy import (
    SCOPE_DRAIN,
    SCOPE_LEADERS,
    SCOPE_NODE,
    SCOPE_REPAIR,
    Options,
    Policy,
)
from placement.verify import verify as find_faults

#: Interval at which a plan is polled, in seconds.
POLL_INTERVAL_S = 1.0
#: As the controller's: limit of a pause for slow appends that the plan does not cause.
SLOW_PATIENCE_S = 20
_ENDED = ("done", "cancelled")
#: The reason of a plan that an operator paused begins with this.
BY_OPERATOR = "paused by the operator"
#: States of a plan that makes its moves and excludes other plans.
EXCLUSIVE_STATES = ("running", "paused")
ACTIVE_STATES = (*EXCLUSIVE_STATES, "cancelling")
#: Scope of a plan -> wanted state of the node that it may be made for.
_STATE_OF_SCOPE = {SCOPE_DRAIN: wire.DRAINING, SCOPE_LEADERS: wire.MAINTENANCE}
#: A policy that names a thousand topics has about 100 KB.
POLICY_BYTES_MAX = 1 << 20
#: Ten years, longer than the age of any snapshot.
AGE_S_MAX = 315_360_000


class PlanExit(enum.IntEnum):
    """Exit codes, for scripts."""

    NOTHING_TO_DO = 2
    INFEASIBLE = 3
    STALE = 4
    PAUSED = 5
    USAGE = PLAN_USAGE


@contextlib.contextmanager
def _plan_exits() -> Iterator[None]:
    """Map exit codes to those of plans: other failures are 1, wrong command lines 64."""
    try:
        yield
    except CommandFailed as error:
        if not isinstance(error, PlanEnded):
            wrong = error.exit_code in (ExitCode.USAGE, PlanExit.USAGE)
            code = int(PlanExit.USAGE if wrong else ExitCode.FAILED)
            error.exit_code = code  # type: ignore[misc]  # click reads it of the instance
        raise
    except click.UsageError as error:
        error.exit_code = int(PlanExit.USAGE)  # type: ignore[misc]  # as above
        raise


class _HasPlanExits(HelpfulCommand):
    """Mixin of commands with these exit codes, also for errors of the command line."""

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Make click's context, with the exit codes of plans."""
        with _plan_exits():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke as click does, with the exit codes of plans."""
        with _plan_exits():
            return super().invoke(ctx)


class RebalanceGroup(_HasPlanExits, HelpfulGroup):
    """A group of commands with the exit codes of plans."""


class PlanCommand(_HasPlanExits):
    """A command with the exit codes of plans in another group."""


class PlanEnded(CommandFailed):
    """A failure with an exit code of its own."""


@click.group(cls=RebalanceGroup)
def rebalance() -> None:
    """Make and apply plans that move leaders, partitions and replicas."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_plan(path: Path) -> plans.Plan:
    """Return the plan of a file. Raises ``CommandFailed`` for a file that cannot be read, is no
    plan, or was edited."""
    raw = b""
    try:
        raw = read_file(path, plans.PLAN_BYTES_MAX)
        return plans.load(raw)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.") from error
    except EditedPlan as error:
        raise CommandFailed(f"{path}: {error}.", "Plans cannot be edited. Make a new one: "
                            "multiraft rebalance plan") from error
    except PlacementError as error:
        if _is_summary(raw):
            raise CommandFailed(f"{path} is not a plan: it is the summary that --json prints.",
                                "Write a plan to a file: multiraft rebalance plan --output "
                                f"{shell_word(path)}") from error
        raise CommandFailed(f"{path} is not a plan: {error}.") from error


def _is_summary(raw: bytes) -> bool:
    """Return True for what ``rebalance plan --json`` and ``rebalance show --json`` print."""
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and "format" not in told and {"plan_id", "waves"} <= told.keys()


plan_argument = click.argument("path", metavar="PLAN",
                               type=click.Path(path_type=Path, dir_okay=False))


# ---- making and looking -------------------------------------------------------------------------

@rebalance.command()
@click.option("--scope", default="all", metavar="SCOPE",
              type=click.Choice(("all", SCOPE_REPAIR, "leaders", SCOPE_DRAIN, SCOPE_NODE)),
              help="all (default), repair, leaders, drain; or node N: only moves from or to node "
                   "N.")
@click.argument("node", required=False, type=NODE, metavar="[N]")
@click.option("--drain", multiple=True, type=NODE, metavar="N",
              help="Plan as if this node were draining.")
@click.option("--budget", "budget", type=Bytes(), default=None, metavar="BYTES",
              help="Limit of bytes copied for balance; repairs are never cut.")
@click.option("--throttle", "rate", type=BytesPerSecond(), default=None, metavar="RATE",
              help="Bytes per second and node, for the estimate and as the plan's throttle.")
@click.option("--window", type=WINDOW, default=plan_input.WINDOW_S,
              metavar="SECONDS", help="Time over which loads are measured.")
@click.option("--policy", "policy", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Bands, limits and exclusions as JSON; omitted keys have their defaults.")
@click.option("--output", "output", type=click.Path(path_type=Path, dir_okay=False),
              metavar="PLAN", help="Write the plan to this file.")
@click.option("--engine", default=plan_engine.PYTHON, type=click.Choice(plan_engine.ENGINES),
              help="python (default): in this process. spark: with Spark, for millions of "
                   "partitions.")
@click.option("--master", type=TEXT, metavar="URL",
              help="Spark only: its master, such as local[2]. Default: all cores of this machine.")
@click.option("--snapshot", metavar="DIR",
              help="Spark only: plan from this export, or from the latest complete period of this "
                   "pipeline's directory.")
@click.option("--measure", is_flag=True,
              help="Spark only: measure loads now, also when the nodes publish them.")
@click.option("--max-age", "max_age", type=Real(0, AGE_S_MAX), metavar="SECONDS",
              help="Spark only: maximum age of a snapshot. Default: as long as a plan is valid.")
@click.option("--report", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Spark only: write a report with pictures to this directory.")
@click.option("--all", "all_moves", is_flag=True, help="Show every move.")
@click.option("--yes", is_flag=True,
              help="Apply the plan at once, and succeed when there is nothing to do. Without it "
                   "nothing is changed.")
@click.option("--wait", is_flag=True, help="With --yes: wait until the plan has ended.")
@load_view.picture_option
@json_option
@servers_option
@click.pass_obj
def plan(session: Session, scope: str, node: int | None, drain: tuple[int, ...],
         budget: int | None, rate: int | None, window: float, policy: Path | None,
         output: Path | None, engine: str, master: str | None, snapshot: str | None,
         measure: bool, max_age: float | None, report: Path | None, all_moves: bool, yes: bool,
         wait: bool, picture: Path | None, as_json: bool) -> None:
    """Make a plan from the present state of the cluster.  Changes nothing without --yes.

    It starts from the present placement and moves only the excess.  `--output` writes it to a file
    for `rebalance apply`; `--yes` applies it at once.
    """
    if wait and not yes:
        raise click.UsageError("--wait waits for a plan that --yes applies.")
    options = options_of(scope, node, drain, budget, rate)
    asked = plan_engine.Asked(engine, master, snapshot, max_age, report, measure)
    asked.check()
    for path in (output, picture):
        check_file(path)
    followed = read_policy(policy)
    plan_input.check_rate(rate, followed)
    if yes and options.scope != SCOPE_REPAIR:
        with connection.open_session(session) as client:
            check_alone(client)
    if engine == plan_engine.SPARK:
        made = plan_engine.make(session, asked, followed, options, window)
    else:
        with connection.open_session(session) as client:
            made = make(client, options, followed, window, session)
    if output is not None:
        write_file(output, plans.save(made))
    with outlived_reader() if yes else contextlib.nullcontext():  # the plan is still to be applied
        if as_json:
            print_json(plan_view.plan_json(made))
        elif yes and not made.moves:
            plan_view.show_remarks(made)
        else:
            plan_view.show_plan(made, all_moves)
            if made.moves:
                load_view.show(made)
    if picture is not None:
        load_view.draw(made, picture)
    end_of(made, shown=not as_json, applies=yes)
    if output is not None and not as_json:
        hint = ("" if yes
                else f" Apply it: multiraft rebalance apply {shell_word(output)} --yes")
        note(f"Written to {output}.{hint}")
    elif not yes and not as_json:
        note("Nothing was changed. To apply such a plan: multiraft rebalance plan --yes; to keep "
             "this one for later: --output plan.json")
    if yes:
        plan_input.check_throttle(made, None, None)
        with connection.open_session(session) as client:
            _start(client, session, made, None, wait)


def options_of(scope: str, node: int | None, drain: tuple[int, ...], budget: int | None,
               rate: int | None) -> Options:
    """Return the options of the flags. Raises ``UsageError`` for a node without the scope ``node``,
    and for that scope without a node."""
    if (scope == SCOPE_NODE) != (node is not None):
        raise click.UsageError(
            "--scope node needs the number of the node: --scope node 4." if node is None else
            f"a number names the node of --scope node: give --scope node {node}, or no number.")
    default = Options()
    return Options(scope, node or 0, drain, budget or 0, rate or default.copy_rate)


def read_policy(path: Path | None) -> Policy:
    """Return the policy of a file, merged into the default one; None = the default one. Raises
    ``CommandFailed`` for a file that cannot be read or is no policy."""
    default = Policy(moves_max=wire.MOVES_MAX)
    if path is None:
        return default
    try:
        told = canonical.parse(read_file(path, POLICY_BYTES_MAX), POLICY_BYTES_MAX)
        if not isinstance(told, dict):
            raise CommandFailed(f"{path} is not a policy: it is not a map, such as "
                                f'{{"cool_down_ms": 0}}.')
        return canonical.from_plain(Policy, {**canonical.to_plain(default), **told}, "policy")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.") from error
    except PlacementError as error:
        raise CommandFailed(f"{path} is not a policy: {error}.") from error


def make(client: Any, options: Options, policy: Policy, window_s: float,
         session: Session, desired_states: Mapping[int, str] | None = None) -> plans.Plan:
    """Measure the cluster for ``window_s`` seconds and return a plan for it; print a note if
    another plan is under way. ``desired_states``: wanted states of nodes to assume. Raises
    ``CommandFailed`` when no plan can be made."""
    try:
        gathered = plan_input.collect(client, _now_ms(), options.scope == SCOPE_REPAIR, window_s,
                                      pause=session.pause)
        if gathered.active_plan and options.scope != SCOPE_REPAIR:
            note(f"Plan {gathered.active_plan[:12]} is under way. This plan starts from the "
                 "present placement, so it contains the moves that the other one has not made yet. "
                 "It cannot be applied before that one has ended, and may be stale then: plan "
                 "again.")
        return make_plan(
            plan_input.with_desired_states(gathered.snapshot, desired_states or {}), policy, options
        )
    except PlacementError as error:
        raise CommandFailed(f"no plan can be made: {error}.") from error


def end_of(made: plans.Plan, shown: bool = False, applies: bool = False) -> None:
    """End the command that made a plan with the exit code for an infeasible or empty one; return
    for any other. ``shown``: the causes were printed. ``applies``: the command would have applied
    the plan, so that an empty one is a success."""
    if made.infeasible and (not made.moves or made.options.drain
                            or made.options.scope == SCOPE_DRAIN):
        first = made.infeasible[0]
        if shown:
            above = "reason" if len(made.infeasible) == 1 else "reasons"
            raise PlanEnded(f"nothing was changed, for the {above} above.", "",
                            PlanExit.INFEASIBLE)
        raise PlanEnded(f"{first.cause}: {first.text}.", first.way_out, PlanExit.INFEASIBLE)
    if not made.moves:
        note(f"{plan_left.nothing_to_do(made)}.")
        raise click.exceptions.Exit(0 if applies else int(PlanExit.NOTHING_TO_DO))


@rebalance.command()
@plan_argument
@click.option("--all", "all_moves", is_flag=True, help="Show every move.")
@load_view.picture_option
@json_option
def show(path: Path, all_moves: bool, picture: Path | None, as_json: bool) -> None:
    """Show the plan in a file, and the loads of nodes and groups before and after it."""
    made = read_plan(path)
    if as_json:
        print_json(plan_view.plan_json(made))
    else:
        plan_view.show_plan(made, all_moves)
        load_view.show(made)
    if picture is not None:
        load_view.draw(made, picture)


@rebalance.command("diff")
@click.argument("first", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("second", type=click.Path(path_type=Path, dir_okay=False))
def diff_(first: Path, second: Path) -> None:
    """Show the moves in which the plans FIRST and SECOND differ."""
    plan_view.show_difference(plans.diff(read_plan(first), read_plan(second)))


@rebalance.command()
@plan_argument
@servers_option
@click.pass_obj
def verify(session: Session, path: Path) -> None:
    """Check a plan against the present state of the cluster.  Changes nothing."""
    made = read_plan(path)
    with connection.open_session(session) as client:
        refuse_repetition(made, client.plan_request(wire.PlanStatus()))
        check(client, made, session)
    note(f"Plan {made.plan_id[:12]} is valid.")


def refuse_repetition(made: plans.Plan, known: wire.PlanStatusReply) -> None:
    """Return unless the plan is the cluster's last one and has ended: the cluster would not start
    it again. Raises ``PlanEnded`` then."""
    if known.plan_id != made.plan_id or known.state not in _ENDED:
        return
    done = dict(known.phases).get("done", 0)
    ended = ("was applied already" if known.state == "done" else
             f"was started already, and ended early ({known.reason})")
    raise PlanEnded(f"plan {made.plan_id[:12]} {ended}: {done:,} of its "
                    f"{plural(known.moves_total, 'move')} {'is' if done == 1 else 'are'} done.",
                    "A plan can be applied once. Make a new one: multiraft rebalance plan",
                    PlanExit.STALE)


def check(client: Any, made: plans.Plan, session: Session) -> Snapshot:
    """Measure the cluster and compare the plan with it. Return the cluster's present state. Raises
    ``PlanEnded`` for a stale plan, ``CommandFailed`` for a wrong one."""
    keep = {group for move in made.moves if isinstance(move, plans.TopicSwitch)
            for group in (move.from_group, move.to_group)}
    try:
        gathered = plan_input.collect(client, _now_ms(), made.options.scope == SCOPE_REPAIR,
                                      plan_input.WINDOW_S / 4, keep, session.pause)
    except PlacementError as error:
        raise CommandFailed(f"no plan can be compared with the cluster: {error}.") from error
    faults = find_faults(made, gathered.snapshot, _now_ms())
    if not faults:
        return gathered.snapshot
    told = plan_view.describe_faults(made, faults)
    if all(fault.stale for fault in faults):
        raise PlanEnded(f"plan {made.plan_id[:12]} is stale:\n{told}",
                        "Make a new one: multiraft rebalance plan", PlanExit.STALE)
    raise CommandFailed(f"plan {made.plan_id[:12]} is invalid:\n{told}",
                        "Make a new one: multiraft rebalance plan")


# ---- carrying out -------------------------------------------------------------------------------

@rebalance.command()
@plan_argument
@click.option("--throttle", type=BytesPerSecond(), default=None, metavar="RATE",
              help="Bytes per second that each node sends at most, and receives at most, such as "
                   "50MiB.")
@click.option("--yes", is_flag=True, help="Apply the plan. Without it: dry run.")
@click.option("--wait", is_flag=True, help="Wait until the plan has ended.")
@servers_option
@click.pass_obj
def apply(session: Session, path: Path, throttle: int | None, yes: bool, wait: bool) -> None:
    """Apply PLAN. Without --yes it is only checked.

    The cluster executes it: the plan continues when this command or a node stops.
    """
    made = read_plan(path)
    if not made.moves:
        note("Nothing to do: the plan has no moves.")
        raise click.exceptions.Exit(int(PlanExit.NOTHING_TO_DO))
    with connection.open_session(session) as client:
        known = client.plan_request(wire.PlanStatus())
        if known.next_plan_id == made.plan_id or (known.plan_id == made.plan_id
                                                  and known.state not in _ENDED):
            note(f"Plan {made.plan_id[:12]} is already running. Watch it: multiraft "
                 f"rebalance status --watch")
            if throttle is not None and throttle != known.limits.throttle:
                note("Its throttle is unchanged: --throttle applies to plans that start. To change "
                     f"it: multiraft rebalance throttle {throttle}")
            if yes and wait:
                finish(client, session, made.plan_id)
            return
        refuse_repetition(made, known)
        plan_input.check_throttle(made, throttle, None)
        seen = check(client, made, session)
        if not yes:
            plan_input.check_throttle(made, throttle, seen)
            plan_view.show_plan(made)
            if throttle is not None:
                note(f"With this throttle it copies {quantities.size(throttle)}/s and "
                     f"node at most, instead of {quantities.size(made.options.copy_rate)}/s.")
            note("Dry run: nothing was changed. Use --yes to apply.")
            return
        _start(client, session, made, throttle, wait)


def _start(client: Any, session: Session, made: plans.Plan, throttle: int | None,
           wait: bool) -> None:
    """Submit a plan whose throttle was checked, and say so; ``wait`` until it is over."""
    state = begin(client, made, throttle)
    note(f"Plan {made.plan_id[:12]} is {state}. Watch it: multiraft rebalance status --watch")
    if wait:
        finish(client, session, made.plan_id)


def check_alone(client: Any) -> None:
    """Return if no plan is under way. Raises ``CommandFailed`` otherwise."""
    status = client.plan_request(wire.PlanStatus())
    if status.state in ACTIVE_STATES:
        raise CommandFailed(
            f"plan {status.plan_id[:12]} is {status.state}, and only one plan can be under way. "
            "Nothing was changed.",
            "Run this again when it has ended (multiraft rebalance status --watch), or end it: "
            "multiraft rebalance cancel")


def begin(client: Any, made: plans.Plan, throttle: int | None) -> str:
    """Submit a plan whose throttle was checked; return its state.  Raises ``CommandFailed`` when it
    is refused for its size or throttle, ``PlanEnded`` for a stale one."""
    try:
        return client.plan_request(plan_input.requested(made, throttle)).state
    except wire_errors.LimitExceeded as error:
        if error.detail.value >= error.detail.limit:
            raise  # another limit, or too large
        raise plan_input.low_throttle(str(error), error.detail.limit) from error
    except wire_errors.StalePlan as error:
        raise PlanEnded(f"the plan is stale: {connection.sentence(error)}",
                        "Make a new one: multiraft rebalance plan", PlanExit.STALE) from error


#: Continuation of a plan whose command was interrupted.
CONTINUES = """The plan is still carried out by the cluster.
Watch it: multiraft rebalance status --watch
Stop it:  multiraft rebalance cancel"""


def finish(client: Any, session: Session, plan_id: str, continues: str = CONTINUES) -> None:
    """Wait until the plan is over and report its result. Ctrl-C leaves as ``Interrupted`` that says
    ``continues``; the plan proceeds.

    Raises ``PlanEnded`` when it paused itself or moves were skipped, ``CommandFailed`` when moves
    failed or it was cancelled. A pause by an operator is reported once. So is a move that waits for
    disk space, whose wait may have no end."""
    with told_if_interrupted(continues):
        _finish(client, session, plan_id)


def _finish(client: Any, session: Session, plan_id: str) -> None:
    was_paused = was_short = False
    while True:
        status = client.plan_request(wire.PlanStatus())
        if status.plan_id != plan_id and status.next_plan_id != plan_id:
            raise CommandFailed(f"plan {plan_id[:12]} is no longer the cluster's plan.",
                                "`multiraft rebalance status` shows the present one.")
        if status.plan_id == plan_id:
            if status.state in _ENDED:
                _raise_for_result(status)
                note(f"Plan {plan_id[:12]} is done: {plural(status.moves_total, 'move')}, "
                     f"{quantities.size(status.bytes_done)} copied, in "
                     f"{quantities.span(max(0, status.now_ms - status.applied_ms))}.")
                return
            is_paused = status.state == "paused"
            if is_paused:
                end_of_status(status)
            if is_paused and not was_paused:
                note(f"Plan {plan_id[:12]} is {status.reason}. This command waits until the plan "
                     "is resumed: multiraft rebalance resume. To end it: multiraft rebalance "
                     "cancel")
            was_paused = is_paused
            short = [row for row in status.moves if row.wait.startswith(wire.NO_DISK_SPACE)]
            if short and not was_short:
                note(f"{short[0].move_id} waits, and this command with it. {short[0].wait}")
            was_short = bool(short)
        session.pause(POLL_INTERVAL_S)


def _raise_for_result(status: wire.PlanStatusReply) -> None:
    if status.state == "cancelled":
        raise CommandFailed(f"plan {status.plan_id[:12]} ended early: {status.reason}.",
                            "`multiraft rebalance status` shows the moves that it had made. For "
                            "the rest, plan again.")
    failed = dict(status.phases).get("failed", 0)
    if failed:
        raise CommandFailed(f"{failed} moves of plan {status.plan_id[:12]} failed.",
                            "`multiraft rebalance status` says why; plan again.")
    skipped = dict(status.phases).get("skipped", 0)
    if skipped:
        raise PlanEnded(f"{skipped} moves of plan {status.plan_id[:12]} were skipped: the state "
                        "that they were planned for had changed.",
                        "`multiraft rebalance status` says how; plan again.", PlanExit.STALE)


@rebalance.command()
@click.option("--watch", is_flag=True, help="Refresh the output until the plan has ended.")
@json_option
@servers_option
@click.pass_obj
def status(session: Session, watch: bool, as_json: bool) -> None:
    """Show the progress of the plan: moves, bytes, rate, and the reasons of moves that wait."""
    with connection.open_session(session) as client, contextlib.ExitStack() as ending:
        show = ending.enter_context(refreshed()) if watch and not as_json else None
        while True:
            found = client.plan_request(wire.PlanStatus())
            if as_json:
                print_json(plan_view.status_json(found), one_line=watch)
            elif show is not None:
                show(functools.partial(plan_view.show_status, found))
            else:
                plan_view.show_status(found)
            if not watch or found.state in (*_ENDED, "none"):
                break
            session.pause(POLL_INTERVAL_S)
    end_of_status(found)


def end_of_status(found: wire.PlanStatusReply) -> None:
    """Return unless the plan has paused itself. Raises ``PlanEnded`` with the exit code for that.
    """
    if found.state == "paused" and not found.reason.startswith(BY_OPERATOR):
        raise PlanEnded(f"plan {found.plan_id[:12]} has paused itself: {found.reason}.",
                        "It resumes automatically when the cause is gone"
                        + (f", or after {SLOW_PATIENCE_S} s of pause in which the reason "
                           "persisted. To accept it: multiraft rebalance resume"
                           if found.reason.startswith("SLOW_COMMITS") else "."), PlanExit.PAUSED)


def _control(session: Session, action: str, value: int = 0) -> None:
    with connection.open_session(session) as client:
        before = client.plan_request(wire.PlanStatus())
        _check_not_done(action, before)
        try:
            reply = client.plan_request(wire.ControlPlan(action, "", value))
        except wire_errors.StalePlan as error:
            raise PlanEnded(connection.sentence(error), "`multiraft rebalance status` shows the "
                            "last one.", PlanExit.NOTHING_TO_DO) from error
        except wire_errors.LimitExceeded as error:
            if error.detail.value >= error.detail.limit:
                raise
            raise plan_input.low_throttle(str(error), error.detail.limit,
                                          "multiraft rebalance throttle {}") from error
        if action == wire.RESUME and reply.state == "paused":  # it would pause itself again
            end_of_status(client.plan_request(wire.PlanStatus()))
        note(f"Plan {reply.plan_id[:12]} is {reply.state}"
             + (f", and copies at most {quantities.size(value)}/s and node from now on."
                if action == wire.THROTTLE else "."))
        if action == wire.CANCEL:
            _note_remaining_states(client, before.scope)


def _check_not_done(action: str, found: wire.PlanStatusReply) -> None:
    """Return if ``action`` has an effect. End the command when the plan is already in the requested
    state, or past it.

    A plan that has paused itself is not paused by the operator as well, which would outlast the
    reason."""
    paused = found.state == "paused" and found.reason.startswith(BY_OPERATOR)
    if action == wire.PAUSE and paused:
        why = "paused already. To resume it: multiraft rebalance resume"
    elif action == wire.RESUME and found.state == "running":
        why = "running already."
    elif action in (wire.PAUSE, wire.RESUME) and found.state == "cancelling":
        why = "being cancelled, and ends by itself."
    else:
        return
    note(f"Nothing to do: plan {found.plan_id[:12]} is {why}")
    raise click.exceptions.Exit(int(PlanExit.NOTHING_TO_DO))


def _note_remaining_states(client: Any, scope: str) -> None:
    """Print a note for each node whose wanted state outlasts a plan of ``scope``, which was made
    for it."""
    for node, state in connection.desired_states(client).items():
        if state == _STATE_OF_SCOPE.get(scope):
            command = "drain" if state == wire.DRAINING else "maintenance"
            note(f"Node {node} is still {connection.STATE_WORDS[state]}, and receives nothing new. "
                 f"To undo that: multiraft node undrain {node}. To continue: multiraft node "
                 f"{command} {node} --yes")


@rebalance.command()
@servers_option
@click.pass_obj
def pause(session: Session) -> None:
    """Pause the plan: start no move and copy nothing; changes of members in progress are completed.
    """
    _control(session, wire.PAUSE)


@rebalance.command()
@servers_option
@click.pass_obj
def resume(session: Session) -> None:
    """Resume a plan that was paused.

    A plan that has paused itself stays paused until the cause is gone.  Slow appends are the
    exception: resuming accepts them for the rest of the plan.
    """
    _control(session, wire.RESUME)


@rebalance.command()
@servers_option
@click.pass_obj
def cancel(session: Session) -> None:
    """Cancel the plan: moves that have not started are dropped, others are undone if possible, else
    completed."""
    _control(session, wire.CANCEL)


@rebalance.command()
@click.argument("rate", metavar="RATE", type=BytesPerSecond())
@servers_option
@click.pass_obj
def throttle(session: Session, rate: int) -> None:
    """Limit copies to RATE bytes per second and node, such as 50MiB, from now on."""
    _control(session, wire.THROTTLE, rate)
