"""Planning of the demo by Spark, from the loads that the nodes appended to `__metrics`.

Contract.  `with_spark` is `multiraft rebalance plan --engine spark`, with its steps on the screen;
it raises `CommandFailed`.  `lacking` returns, without starting Spark, the reason why Spark cannot
run; the demo then calls the same planner directly, with loads that it measures itself.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from screen import Screen

from admin_cli.plans import loads
from admin_cli.plans.spark_errors import translated_errors
from admin_cli.session import Session
from placement import plan as plans
from placement.policy import Options, Policy

#: Windows of one second; the greatest rate of each partition among them counts.
WINDOWS = 60
AGE_MAX_MS = 600_000


def lacking() -> str:
    """Return why Spark cannot plan here, and the command that installs it; empty when it can."""
    from spark import session as spark_session
    from spark.errors import NoSpark

    try:
        spark_session.check_machine()
    except NoSpark as error:
        return f"{error} {error.do}"
    return ""


def with_spark(addresses: Sequence[str], policy: Policy, screen: Screen) -> plans.Plan:
    """Return the plan.  Raises ``CommandFailed``."""
    asking = Session({"MULTIRAFT_SERVERS": ",".join(addresses)})
    with translated_errors():
        from spark import planning
        from spark import session as spark_session

        # Two tasks at a time would leave no processor to the nodes of a small machine; and code
        # that runs once does not repay the second compiler.
        os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        with spark_session.started("local[1]") as session, tempfile.TemporaryDirectory() as place:
            screen.event(f"Spark {session.version} is up")
            directory = str(Path(place) / "snapshot")
            loads.from_topic(asking, session, AGE_MAX_MS, directory, WINDOWS,
                             lambda text: screen.event(f"  {text.strip()}"))
            made = planning.make(lambda: session, directory, policy, Options(), loads.now_ms(),
                                 AGE_MAX_MS, lambda stage: screen.event(
                                     f"  {stage.seconds:.1f} s  {stage.name}: {stage.text}"))
    return made.plan
