"""What Spark's side raises, as this command says it.

Contract.  Inside ``sentences`` nothing leaves but ``CommandFailed`` with a sentence and what helps;
a package that is not installed is one of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from admin_cli.failures import CommandFailed


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """Errors of Spark's side as this command's."""
    try:
        from spark.errors import SparkPlanError
    except ImportError as error:
        raise missing(error) from error
    try:
        yield
    except SparkPlanError as error:
        raise CommandFailed(str(error), error.do) from error
    except ImportError as error:
        raise missing(error) from error


def missing(error: ImportError) -> CommandFailed:
    """What to say of a package that is not installed."""
    return CommandFailed(f"snapshots and Spark need the package {error.name}, which is not "
                         f"installed.", "pip install 'multiraft[spark]'")
