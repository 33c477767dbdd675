"""Checkers: what a run must not have shown, decided from its history and the logs it left.

Every layer of proof uses this one library: the simulator, runs against processes, runs against
containers.  The catalogue of anomalies (``chaos.checkers.catalogue``) names the class of each,
whose docstring is its exact definition; what a checker says is an ``Anomaly`` of
``chaos.checkers.verdict``.  ``check`` runs them all.
"""

from chaos.checkers.check import check
from chaos.checkers.checker import LIMITS, Limits
from chaos.checkers.verdict import Anomaly, Verdict

__all__ = ["LIMITS", "Anomaly", "Limits", "Verdict", "check"]
