"""Nemesis of bit rot: bits flip in entries, hard state, index files and checkpoints.

Contract.  The atlas must allow every flip.  In segments only entries that later writes *prove*
durable are hit: damage in the newest write of a node is a torn tail to every reader (decision
0002), and no promise covers it.  Positions of entries come from ``multiraft log inspect``.  The
nodes repair the damage themselves; ``heal`` does nothing.

A flip in a file of a node that runs is seen by the node at once, through the page cache; one in a
file that it has in memory is seen when it starts again.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from chaos import faults
from chaos.backends import host
from chaos.backends.backend import BIT_ROT, Backend, BackendError
from chaos.nemeses.atlas import EntryRegion, FaultAtlas, FileRegion
from chaos.nemeses.nemesis import Field, Nemesis, Strike

#: Bits that flip in one fault.
FLIPS = (1, 2, 5)
#: Size of an entry's header, and of the part of a batch that its own CRC leaves out
#: (storage-format.md).
HEADER_BYTES, BATCH_HEAD_BYTES = 64, 21
#: Later entries that must prove a place durable before it is damaged: more than the two writes by
#: which durable watermarks may lag.
PROOFS = 8
#: Time to read the positions of entries; a segment is at most 64 MiB.
INSPECT_S = 60.0


class Flip(NamedTuple):
    """One place where a bit may flip."""

    path: Path
    offset: int
    region: EntryRegion | FileRegion
    text: str


#: Functions that find places on a node.
Places = Callable[[random.Random, Backend, int], Iterator[Flip]]


class BitRot(Nemesis):
    """Some flips in the files of one node."""

    name, kind = faults.BIT_ROT.nemesis, BIT_ROT
    healing = "left to the node to find and repair"

    def __init__(self, field: Field, atlas: FaultAtlas):
        super().__init__(field)
        self._atlas = atlas

    def plan(self) -> Strike:
        self.nodes = node, = self.field.aim("one")
        kinds = [entries, hard_state, index_files, checkpoints]
        self.rng.shuffle(kinds)
        for places in kinds:
            found = [flip for flip in self._look(places, node)
                     if self._atlas.may_hit(node, flip.region)]
            if found:
                self._flips = self._choose(node, found)
                return Strike(self.nodes, "bits flipped in "
                              + ", ".join(flip.text for flip in self._flips))
        raise BackendError(f"there is nothing on node {node} that may still be damaged")

    def _look(self, places: Places, node: int) -> list[Flip]:
        """Return the places that ``places`` finds on a node.  Raises ``BackendError`` where the
        files cannot be read: the disk has another fault, or a file was removed meanwhile."""
        try:
            return list(places(self.rng, self.backend, node))
        except OSError as error:
            raise BackendError(f"the files of node {node} cannot be read: {error}") from error

    def _choose(self, node: int, found: list[Flip]) -> list[Flip]:
        """Draw some flips of ``found``, at most as many as drawn from ``FLIPS``, record them as
        damage in the atlas, and return them. Those that the atlas forbids by then are left out."""
        chosen = []
        for flip in self.rng.sample(found, min(len(found), self.rng.choice(FLIPS))):
            if self._atlas.may_hit(node, flip.region):
                self._atlas.hit(node, flip.region)
                chosen.append(flip)
        return chosen

    def begin(self) -> None:
        for flip in self._flips:
            try:
                flip_bit(flip.path, flip.offset, self.rng.randrange(8))
            except FileNotFoundError:
                continue  # sealed, replaced or removed meanwhile: there is nothing to damage
            except OSError as error:
                raise BackendError(f"{flip.path} lets no bit flip: {error}") from error


def flip_bit(path: Path, offset: int, bit: int) -> None:
    """Flip bit ``bit`` (0 to 7) of the byte at ``offset``, durably; the file's length and times do
    not change. Raises ``OSError``."""
    status = path.stat()
    with path.open("r+b", buffering=0) as file:
        byte, = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), offset)
        os.fsync(file.fileno())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def entries(rng: random.Random, backend: Backend, node: int) -> Iterator[Flip]:
    """Yield a place in the payload of each durable data entry of one segment, chosen at random."""
    for path, row in _durable_rows(rng, backend, node):
        if row["kind"] == "data":
            start = row["position"] - _start(path)
            offset = start + rng.randrange(HEADER_BYTES + BATCH_HEAD_BYTES, row["length"])
            yield Flip(path, offset, EntryRegion(row["group"], row["index"]),
                       f"entry {row['index']} of group {row['group']}")


def hard_state(rng: random.Random, backend: Backend, node: int) -> Iterator[Flip]:
    """Yield a place, header included, in each durable record of term and vote of one segment,
    chosen at random."""
    for path, row in _durable_rows(rng, backend, node):
        if row["kind"] == "hard_state":
            start = row["position"] - _start(path)
            yield Flip(path, start + rng.randrange(row["length"]),
                       FileRegion(f"hard state of group {row['group']}", row["position"]),
                       f"the hard state of group {row['group']} at {row['position']}")


def index_files(rng: random.Random, backend: Backend, node: int) -> Iterator[Flip]:
    """Yield one place, anywhere, in each index file; these files are caches."""
    return _whole_files(rng, backend, node, "lane-0/*.index")


def checkpoints(rng: random.Random, backend: Backend, node: int) -> Iterator[Flip]:
    """Yield one place, anywhere, in the newer of the two checkpoints; nothing while there are
    fewer. The atlas lets each checkpoint be damaged only once."""
    found = sorted(backend.data_directory(node).glob("checkpoint-" + "[0-9]" * 20))
    if len(found) >= 2:
        yield _in_file(rng, backend, node, found[-1])


def _whole_files(rng: random.Random, backend: Backend, node: int, glob: str) -> Iterator[Flip]:
    for path in sorted(backend.data_directory(node).glob(glob)):
        yield _in_file(rng, backend, node, path)


def _in_file(rng: random.Random, backend: Backend, node: int, path: Path) -> Flip:
    name = str(path.relative_to(backend.data_directory(node)))
    offset = rng.randrange(path.stat().st_size)
    return Flip(path, offset, FileRegion(name, offset), f"{name} at {offset}")


def _start(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _durable_rows(rng: random.Random, backend: Backend, node: int) -> Iterator[tuple[Path, dict]]:
    """Yield (file, row) of entries of one segment, chosen at random, that later ones prove durable.
    Nothing without segments, or with too few proofs in the chosen one."""
    segments = sorted(backend.data_directory(node).glob("lane-0/*.segment"))
    if not segments:
        return
    path = rng.choice(segments)
    rows = inspect(path)
    marks = sorted(row["durable"] for row in rows)
    if len(marks) <= PROOFS:
        return
    proven = marks[-PROOFS - 1]
    for row in rows:
        if not row["problem"] and row["position"] + row["length"] <= proven:
            yield path, row


def inspect(path: Path) -> list[dict]:
    """Return the entries of a segment, one dictionary each, as ``multiraft log inspect --json``
    lists them. Raises ``BackendError``."""
    try:
        said = host.run_python("admin_cli", "log", "inspect", "--json", str(path),
                               timeout_s=INSPECT_S, statuses=(0, 1))
    except BackendError as error:
        raise BackendError(f"{path} cannot be read: {error}") from error
    return [row for row in map(json.loads, said.splitlines()) if row.get("entry")]
