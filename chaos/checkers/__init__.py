"""Checkers: one class per anomaly, judging a run's history and the logs of its replicas.

The simulator, runs against processes and runs against containers all use this library.  The
catalogue of anomalies (``chaos.checkers.catalogue``) names the class of each id; the docstring of
that class is the exact definition.  A checker reports an ``Anomaly`` of ``chaos.checkers.verdict``.
``check`` runs all of them.
"""

from chaos.checkers.check import check
from chaos.checkers.checker import LIMITS, CheckerLimits
from chaos.checkers.verdict import Anomaly, Verdict

__all__ = ["LIMITS", "Anomaly", "CheckerLimits", "Verdict", "check"]
