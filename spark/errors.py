"""Errors of a snapshot, or of the machine that plans from it.

    SparkPlanError
    +- BadSnapshot        missing, of another format, incomplete, too old, impossible
    +- NoSpark            Java, PySpark or a package that it needs is not there
    +- SparkFailed        Spark itself gave up

Contract.  Each error has a sentence about the cause, and ``do``, which names the remedy.  The JVM's
stack is not part of them.
"""

from __future__ import annotations


class SparkPlanError(Exception):
    """Root of this package's errors."""

    def __init__(self, what: str, do: str = ""):
        super().__init__(what)
        self.do = do


class BadSnapshot(SparkPlanError):
    """Raised when no plan can be made from these files."""


class NoSpark(SparkPlanError):
    """Raised when Spark cannot be started here."""


class SparkFailed(SparkPlanError):
    """Raised when Spark was started and failed."""
