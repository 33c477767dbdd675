"""Registry of the simulator's faults, by kind.

Contract.  ``@fault(kind)`` registers a function that draws a target and acts on it at once.  It
returns True when the fault has happened and is to be counted; False when it found no target, or has
only armed a fault, which is counted when it happens.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.faults.injector import Injector

#: Draws a target and acts on it; True = the fault has happened.
Fault = Callable[[Injector], bool]

#: Kind -> function, once the modules of the faults are imported (``nemesis.py``).
FAULTS: dict[str, Fault] = {}


def fault(kind: str) -> Callable[[Fault], Fault]:
    """Register the decorated function as the fault of this kind."""
    def register(function: Fault) -> Fault:
        FAULTS[kind] = function
        return function
    return register
