"""Probes: find which faults this machine can inject by injecting each on the smallest scale.

Contract.  Each probe returns the reason why its fault is impossible, in one sentence, or nothing.
It leaves nothing behind, and records in the ledger what it creates before it does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import struct
import tempfile
from pathlib import Path

from chaos.backends import disk, host, ledger, throttle
from chaos.backends.backend import (
    BIT_ROT,
    CLIENTS,
    CLOCK,
    DELAY,
    FAILED_DISK,
    FULL_DISK,
    HUNG_DISK,
    KINDS,
    LOSS,
    PARTITION,
    POWER_LOSS,
    RESET,
    SLOW_DISK,
    BackendError,
    Delay,
    Link,
)
from chaos.backends.packets import LinkFaults, NodePackets

NETWORK_COMMANDS = ("ip", "nsenter", "iptables-restore")
DISK_COMMANDS = ("mkfs.ext4", "losetup", "blockdev", "mount", "umount")
_PROBE_DISK_BYTES = 8 << 20
_ADDRESSES = {CLIENTS: "192.0.2.1", 1: "192.0.2.2", 2: "192.0.2.3"}  # reserved for documentation
_LINK = frozenset({Link(2, 1)})
_LINK_FAULTS = {
    PARTITION: LinkFaults(cut=_LINK),
    LOSS: LinkFaults(lossy=_LINK, loss=0.5),
    DELAY: LinkFaults(delayed=_LINK, delay=Delay(1.0)),
    RESET: LinkFaults(reset=_LINK)}
DISK_KINDS = (POWER_LOSS, SLOW_DISK, HUNG_DISK, FULL_DISK, FAILED_DISK)


def left_out(book: ledger.ResourceLedger) -> dict[str, str]:
    """Return kind of fault -> reason why it is impossible here; in the order of ``KINDS``."""
    why = _network(book) | _disk(book) | without_launcher()
    return {kind: why[kind] for kind in KINDS if kind in why}


def without_launcher() -> dict[str, str]:
    """Return {``CLOCK``: reason} when the launcher, which replaces a node's clock at its start, is
    missing; otherwise {}."""
    if importlib.util.find_spec("chaos.launcher") is None:
        return {CLOCK: "there is no launcher that replaces a node's clock"}
    return {}


def without_root() -> dict[str, str]:
    """Return kind -> reason for the faults that need root."""
    return dict.fromkeys((*_LINK_FAULTS, *DISK_KINDS),
                         "it takes root: a network and a disk of its own for every node")


def rot_without_root() -> dict[str, str]:
    """Return kind -> reason for the faults that need root in containers only: files of a
    container's user belong to another user."""
    return {BIT_ROT: "it takes root: the files belong to the container's user"}


def _network(book: ledger.ResourceLedger) -> dict[str, str]:
    lacking = host.lacking(*NETWORK_COMMANDS)
    if lacking:
        return dict.fromkeys(_LINK_FAULTS, lacking)
    name = f"mrc{book.run}p"
    book.note(ledger.NAMESPACE, name)
    try:
        host.run("ip", "netns", "add", name)
    except BackendError as error:
        return dict.fromkeys(_LINK_FAULTS, f"no network namespace can be made: {error}")
    try:
        packets = NodePackets(1, Path("/run/netns", name))
        return {kind: why for kind, faults in _LINK_FAULTS.items()
                if (why := _try_rules(packets, faults))}
    finally:
        host.run("ip", "netns", "del", name)


def _try_rules(packets: NodePackets, faults: LinkFaults) -> str:
    try:
        packets.apply(_ADDRESSES, faults)
    except BackendError as error:
        return str(error)
    finally:
        packets.release()
    return ""


def _disk(book: ledger.ResourceLedger) -> dict[str, str]:
    lacking = host.lacking(*DISK_COMMANDS)
    if lacking:
        return dict.fromkeys(DISK_KINDS, lacking)
    why: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="multiraft-chaos-") as name:
        probe = disk.LoopDisk(Path(name, "image"), Path(name, "mount"))
        book.note(ledger.DISK, str(probe.image), str(probe.mount))
        try:
            probe.create(_PROBE_DISK_BYTES)
        except BackendError as error:
            return dict.fromkeys(DISK_KINDS, f"no file system can be made in a file: {error}")
        try:
            why |= _try_disk(probe)
        finally:
            with contextlib.suppress(BackendError):
                probe.thaw()
            probe.detach()
    if throttle.unavailable():
        why[SLOW_DISK] = throttle.unavailable()
    return why


def _try_disk(probe: disk.LoopDisk) -> dict[str, str]:
    why = {}
    try:
        probe.freeze()
        probe.thaw()
    except BackendError as error:
        why[HUNG_DISK] = str(error)
    try:
        probe.shut_down()
        try:
            (probe.mount / "file").write_bytes(struct.pack("Q", os.getpid()))
        except OSError:
            return why
        raise BackendError("a file system that was shut down still takes writes")
    except BackendError as error:
        return why | dict.fromkeys((POWER_LOSS, FAILED_DISK), str(error))
