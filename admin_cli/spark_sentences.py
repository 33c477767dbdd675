"""Errors of Spark's side as errors of this command.

Contract.  Only ``CommandFailed``, with a sentence and the remedy, leaves ``sentences``; a package
that is not installed is one of these errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from admin_cli.failures import CommandFailed


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """Turn errors of Spark's side into ``CommandFailed``."""
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
    """Return the failure for a package that is not installed."""
    return CommandFailed(f"snapshots and Spark need the package {error.name}, which is not "
                         f"installed.", "pip install 'multiraft[spark]'")
