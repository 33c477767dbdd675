"""A planted bug: one replacement in the source of one function of the running code.

Contract.  ``plant(bug)`` patches a bug in until the process ends, ``planted(bug)`` while a context
lasts.  The released packages contain no switch for this: the function object stays the same for all
its importers, and gets the code of its changed source.  When the text to replace is missing, or
occurs more than once, planting raises ``StaleBug``, so that a bug cannot silently become no bug, or
another one.

Theory.  A proof that cannot fail proves nothing (mutation testing).  Each bug names its layer of
proof: the cheapest one that catches it.
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
    """Raised when the code that a bug replaces no longer exists."""


class Scripts(NamedTuple):
    """A bug that golden scripts of the consensus core catch."""

    names: tuple[str, ...]  # below tests/raft/testdata

    layer = SCRIPTS

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the test ids for pytest, from the root of the source tree."""
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
    # faults that are needed to see it; empty = those that the seed draws
    faults: tuple[str, ...] = ()
    members: bool = False  # groups change their members

    layer = SIMULATOR


class Histories(NamedTuple):
    """A bug that the checkers find in the history of a seed, without the simulator's invariants."""

    anomalies: tuple[str, ...]  # at least one of them is found
    faults: tuple[str, ...]  # faults that are needed to see it

    layer = CHECKERS


class NemesisRun(NamedTuple):
    """A bug that a run of containers under a nemesis catches."""

    seconds: int
    nemeses: tuple[str, ...]
    seed: int  # of a rotation in which the needed faults come early

    layer = DOCKER


class ProcessRun(NamedTuple):
    """A bug that a run of processes under a nemesis catches, with some workloads only."""

    seconds: int
    nemeses: tuple[str, ...]
    seed: int  # of a rotation in which the needed faults come early
    workloads: tuple[str, ...]
    anomalies: tuple[str, ...]  # at least one of them is found

    layer = PROCESS


Proof = Scripts | Tests | Histories | Nodes | Seeds | NemesisRun | ProcessRun


class Bug(NamedTuple):
    """Replace ``old`` by ``new`` in the source of ``function`` (dotted within ``module``)."""

    name: str
    module: str
    function: str
    old: str
    new: str
    why: str  # effect of the bug, and where it was seen
    proof: Proof  # the cheapest proof that catches it
    seeds: Seeds | None = None  # a dearer one, which shows that the simulator can fail

    @property
    def layer(self) -> str:
        """Return the layer of ``proof``, which has to catch the bug."""
        return self.proof.layer

    def proof_in(self, layer: str) -> Proof | None:
        """Return the proof of this bug that belongs to a layer: ``proof`` or ``seeds``; None =
        neither does."""
        return next((proof for proof in (self.proof, self.seeds)
                     if proof is not None and proof.layer == layer), None)


def plant(bug: Bug) -> None:
    """Plant the bug in this process until it ends.  Raises ``StaleBug`` when the function, or the
    text to replace in it, does not exist or occurs more than once."""
    target = _function(bug)
    target.__code__ = _mutated(bug, target)


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Plant the bug in this process while the context lasts; None plants nothing.  Raises
    ``StaleBug`` as ``plant``."""
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
    """Return the function's code with the bug in it.  Raises ``StaleBug`` when the text to replace
    does not occur exactly once, or the code cannot be compiled alone."""
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
