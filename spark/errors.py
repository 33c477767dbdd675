"""What can be wrong with a snapshot, or with the machine that shall plan from it.

    SparkPlanError
    +- BadSnapshot        missing, of another format, incomplete, too old, impossible
    +- NoSpark            Java, PySpark or a package that it needs is not there
    +- SparkFailed        Spark itself gave up

Contract.  Each has a sentence that says what is wrong, and ``do``, which says what helps.  Nothing
of the JVM's stack gets this far.
"""

from __future__ import annotations


class SparkPlanError(Exception):
    """Root of this package's errors."""

    def __init__(self, what: str, do: str = ""):
        super().__init__(what)
        self.do = do


class BadSnapshot(SparkPlanError):
    """No plan can be made from these files."""


class NoSpark(SparkPlanError):
    """Spark cannot be started here."""


class SparkFailed(SparkPlanError):
    """Spark was started and did not get to the end."""
