"""A planted bug: one replacement in the source of one function of the running code.

Contract.  ``plant(bug)`` puts a bug in for the life of the process, ``planted(bug)`` while a
context lasts.  What is shipped contains no switch for any of this: the function keeps its identity,
whoever imported it, and gets the code of its changed source.  When the text to replace is not there
(any more), or more than once, planting raises ``StaleBug``, so that a bug cannot silently become
none, or another one.

Theory.  A proof that cannot fail proves nothing (mutation testing).  Which bug belongs to which
layer of proof is said with it: the cheapest that catches it.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import NamedTuple

#: From the cheapest to the dearest: golden scripts of the consensus core; tests that drive parts,
#: by name; the history of a seed, in front of the checkers alone; seeds of the simulator, in front
#: of its invariants; tests that start real nodes, or hurt a real disk; runs with a nemesis.
SCRIPTS, TESTS, CHECKERS, SIMULATOR, PROCESS, DOCKER = LAYERS = (
    "scripts", "tests", "checkers", "simulator", "process", "docker")


class StaleBug(Exception):
    """The code that a bug replaces is not there any more."""


class Scripts(NamedTuple):
    """A bug that golden scripts of the consensus core catch."""

    names: tuple[str, ...]  # below tests/raft/testdata

    layer = SCRIPTS

    @property
    def ids(self) -> tuple[str, ...]:
        """As pytest takes them, from the root of the source tree."""
        return tuple(f"tests/raft/test_interaction.py::test_script[{name}]"
                     for name in self.names)


class Tests(NamedTuple):
    """A bug that tests catch: at least one of them fails with it, none without it."""

    ids: tuple[str, ...]

    layer = TESTS


class Nodes(NamedTuple):
    """A bug that tests with real nodes or real disks catch."""

    ids: tuple[str, ...]

    layer = PROCESS


class Seeds(NamedTuple):
    """A bug that simulator seeds catch, in small worlds where much happens to each group."""

    pinned: tuple[int, ...] = ()  # seeds that caught it, tried first
    faults: tuple[str, ...] = ()  # what it takes to be seen; empty = whatever the seed plays with
    members: bool = False  # whether groups change their members

    layer = SIMULATOR


class Histories(NamedTuple):
    """A bug that the checkers see in what the clients of a seed asked and were told, while nobody
    looks inside."""

    anomalies: tuple[str, ...]  # of which one at least is found
    faults: tuple[str, ...]  # what it takes to be seen

    layer = CHECKERS


class Run(NamedTuple):
    """A bug that a run of containers under a nemesis catches."""

    seconds: int
    nemeses: tuple[str, ...]
    seed: int  # of a rotation in which what it takes comes early

    layer = DOCKER


Proof = Scripts | Tests | Histories | Nodes | Seeds | Run


class Bug(NamedTuple):
    """Replace ``old`` by ``new`` in the source of ``function`` (dotted within ``module``)."""

    name: str
    module: str
    function: str
    old: str
    new: str
    why: str  # what it breaks and where it was seen, for people
    proof: Proof  # the cheapest that catches it
    seeds: Seeds | None = None  # a dearer one: what shows that the simulator can fail

    @property
    def layer(self) -> str:
        """The layer that has to catch it."""
        return self.proof.layer

    def proof_in(self, layer: str) -> Proof | None:
        """What catches it in a layer, if anything there has to."""
        return next((proof for proof in (self.proof, self.seeds)
                     if proof is not None and proof.layer == layer), None)


def plant(bug: Bug) -> None:
    """The bug is in, for good.  Raises ``StaleBug``."""
    target = _function(bug)
    target.__code__ = _mutated(bug, target)


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """The bug is in while the context lasts; None plants nothing.  Raises ``StaleBug``."""
    if bug is None:
        yield
        return
    target = _function(bug)
    shipped = target.__code__
    plant(bug)
    try:
        yield
    finally:
        target.__code__ = shipped


def _function(bug: Bug) -> FunctionType:
    try:
        found: object = importlib.import_module(bug.module)
        for part in bug.function.split("."):
            found = inspect.getattr_static(found, part)
    except (ImportError, AttributeError) as error:
        raise StaleBug(f"{bug.name}: there is no {bug.module}.{bug.function}") from error
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise StaleBug(f"{bug.name}: {bug.module}.{bug.function} is {found!r}, no function")
    return found


def _mutated(bug: Bug, target: FunctionType) -> CodeType:
    """The function's code with the bug in it."""
    source = textwrap.dedent(inspect.getsource(target))
    if source.count(bug.old) != 1:
        raise StaleBug(f"{bug.name}: {bug.module}.{bug.function} contains {bug.old!r} "
                       f"{source.count(bug.old)} times")
    module = compile("from __future__ import annotations\n" + source.replace(bug.old, bug.new),
                     f"<planted in {bug.function}>", "exec")
    found = [constant for constant in module.co_consts if isinstance(constant, CodeType)
             and constant.co_name == target.__name__]
    if len(found) != 1 or found[0].co_freevars != target.__code__.co_freevars:
        raise StaleBug(f"{bug.name}: {bug.module}.{bug.function} cannot stand alone")
    return found[0]
