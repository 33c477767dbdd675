"""Faults of files beside the entries: checkpoints, the identity file, segment headers, directories.

Contract.  Bit rot in these files may cost its node everything that it knows.  The cluster must
therefore be able to do without that node, as after damage of an entry's header
(``corruption.FaultAtlas``).  A strike that finds no such node is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.faults.injector import Injector, is_active
from chaos.simulator.faults.registry import fault
from multiraft.codec import layout

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: One of the next syncs of a directory fails, at most so many.
DIRECTORY_SYNCS_MAX = 4


def _dispensable(injector: Injector) -> SimulatedNode | None:
    """Return a random node that is up and may lose everything that it knows; None = no node may."""
    nodes = [node for _, node in sorted(injector.world.nodes.items())
             if is_active(node) and injector.world.atlas.may_lose(node.node)]
    return injector.rng.choice(nodes) if nodes else None


def _flip_and_crash(injector: Injector, node: SimulatedNode, path: str, at: int) -> None:
    """Flip a bit of a file and note it in the atlas; then crash the node, because only a start
    reads these files."""
    injector.world.atlas.note_lost(node.node)
    injector.trace(node.node, f"rot of {path} at {at}")
    node.damage.rot(path, at, injector.rng.randrange(8))
    injector.crash(node, injector.rng.random() < 0.5)


@fault("rot-checkpoint")
def rot_checkpoint(injector: Injector) -> bool:
    """Damage a checkpoint of a node that the cluster can do without, and crash it: recovery uses
    the checkpoint before it, or the journal alone. Return False without such a node."""
    node = _dispensable(injector)
    files = node.damage.checkpoint_files() if node is not None else {}
    if not files:
        return False
    path = injector.rng.choice(sorted(files))
    _flip_and_crash(injector, node, path, injector.rng.randrange(files[path]))
    return True
@fault("rot-header")
def rot_header(injector: Injector) -> bool:
    """Damage the header of a segment of a node that the cluster can do without, and crash it. The
    entries behind the header belong to unknown groups. Return False without such a node."""
    node = _dispensable(injector)
    places = node.damage.durable_places() if node is not None else ()
    paths = sorted({place.path for place in places})
    if not paths:
        return False
    _flip_and_crash(injector, node, injector.rng.choice(paths),
                    injector.rng.randrange(layout.SEGMENT_HEADER_BYTES))
    return True
@fault("rot-identity")
def rot_identity(injector: Injector) -> bool:
    """Damage the identity file of a random node and crash it: it can no longer start, and another
    one replaces it. Return False when no node may be lost."""
    nodes = [node for _, node in sorted(injector.world.nodes.items())
             if node.is_up and injector.world.replacements.may_wipe(node)]
    if not nodes:
        return False
    node = injector.rng.choice(nodes)
    path, size = node.damage.identity_file()
    at = injector.rng.randrange(size)
    injector.world.atlas.note_lost(node.node)
    injector.trace(node.node, f"rot of {path} at {at}")
    node.damage.rot_identity(at, injector.rng.randrange(8))
    injector.crash(node, injector.rng.random() < 0.5)
    return True
@fault("eio-directory")
def eio_directory(injector: Injector) -> bool:
    """Fail one of the next directory syncs of a random node: some changed names are on the disk,
    and the others are never written.

    Counted when the sync fails.
    """
    node, syncs = injector.draw_node(), injector.rng.randrange(1, DIRECTORY_SYNCS_MAX)
    injector.trace(node.node, f"sync {syncs} of a directory fails")
    node.disk.arm_directory_error(syncs)
    return False
