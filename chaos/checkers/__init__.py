"""Checkers: what a run must not have shown, decided from its history and the logs it left.

Every layer of proof uses this one library: the simulator, runs against processes, runs against
containers.  The catalogue of anomalies, each with its exact definition, is in the modules; what a
checker says is an ``Anomaly`` of ``chaos.checkers.verdict``.
"""
