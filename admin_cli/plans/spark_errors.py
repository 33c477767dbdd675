"""Translation of Spark's errors into errors of this command.

Contract.  Only ``CommandFailed``, with the cause and the remedy, leaves ``translated_errors``; a
package that is not installed is one of these errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from admin_cli import extras
from admin_cli.failures import CommandFailed


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Turn errors of Spark in the body, and of packages that are missing, into ``CommandFailed``.
    """
    try:
        from spark.errors import SparkPlanError
    except ImportError as error:
        raise package_missing(error) from error
    try:
        yield
    except SparkPlanError as error:
        raise CommandFailed(str(error), error.do) from error
    except ImportError as error:
        raise package_missing(error) from error


def package_missing(error: ImportError) -> CommandFailed:
    """Return the failure for a package that is not installed."""
    return extras.missing("spark", str(error.name))
