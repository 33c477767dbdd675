"""Identity of a data directory: its boot ids across crashes, and the mark of a refusal."""

import json
import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.liveness.peer_identity import (
    BOOT_IDS_KEPT,
    DURABLE,
    NO_BOOT_ID,
    BootHistory,
    BootId,
    BootIdOrigin,
)
from multiraft.storage import identity, refusal_record
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import NODE_FILE, Claimed, Identity
from multiraft.storage.refusal_record import RefusalRecord

CLUSTER = bytes(range(16))


def starts(filesystem, directory: str, number: int) -> Claimed:
    return identity.claim(filesystem, directory, Identity(CLUSTER, 1, 77, DURABLE | number), False)


def test_each_start_is_a_boot_id_of_its_own_behind_those_before():
    disk = SimulatedFilesystem()
    disk.make_directory("/d")
    for epoch in (1, 2, 3):
        claimed = starts(disk, "/d", 10 * epoch)
    assert claimed.boot_ids == tuple(BootId(epoch, DURABLE | 10 * epoch) for epoch in (1, 2, 3))
    assert identity.read(disk, "/d").boot_ids == claimed.boot_ids
    alone = identity.claim(disk, "/d", Identity(CLUSTER, 1), False)
    assert alone.boot_epoch == 4 and alone.boot_ids == claimed.boot_ids, "work that meets nobody"


def test_as_many_boot_ids_are_kept_as_the_limit_says():
    disk = SimulatedFilesystem()
    disk.make_directory("/d")
    many = tuple(BootId(epoch, DURABLE) for epoch in range(1, BOOT_IDS_KEPT + 1))
    identity._write(disk, "/d", Identity(CLUSTER, 1), Claimed(77, BOOT_IDS_KEPT, many))
    claimed = starts(disk, "/d", 5)
    assert len(claimed.boot_ids) == BOOT_IDS_KEPT
    assert claimed.boot_ids[-1] == BootId(BOOT_IDS_KEPT + 1, DURABLE | 5)
    assert identity.read(disk, "/d").boot_ids == claimed.boot_ids, "the file is small enough"


@pytest.mark.parametrize("crash", ["power_loss", "process_death"])
def test_a_crash_at_any_operation_of_a_start_makes_no_copy_of_the_directory(crash):
    """A peer remembers a boot id that was claimed: it is one of the directory's own at every later
    start."""
    fuse, blew = 0, True
    while blew:
        disk = SimulatedFilesystem()
        disk.make_directory("/d")
        disk.sync_directory("/")
        remembered = starts(disk, "/d", 1).boot_ids[-1]
        disk.operations_to_crash, blew = fuse, False
        try:
            remembered = starts(disk, "/d", 2).boot_ids[-1]
        except PowerLoss:
            blew = True
        disk.operations_to_crash = -1
        getattr(disk, crash)(random.Random(fuse))
        for number in (3, 4):
            claimed = starts(disk, "/d", number)
            origin = BootHistory(claimed.boot_ids).origin_of(remembered)
            assert origin is BootIdOrigin.OWN, f"fuse {fuse}"
            assert len({*claimed.boot_ids}) == len(claimed.boot_ids)
        fuse += 1
    assert fuse > 3


def test_a_directory_of_the_last_release_goes_on(tmp_path):
    """Its file has a version of its own, and no lives."""
    fields = {"boot_epoch": 4, "cluster_id": CLUSTER.hex(), "format_version": 1,
              "incarnation": 77, "node": 1}
    (tmp_path / NODE_FILE).write_text(json.dumps({**fields, "crc": identity._crc(fields)}))
    claimed = starts(RealFilesystem(), str(tmp_path), 9)
    assert claimed == Claimed(77, 5, (BootId(5, DURABLE | 9),))
    assert json.loads((tmp_path / NODE_FILE).read_text())["format_version"] == 2


@pytest.mark.parametrize("boot_ids", [[[1]], [[1, 2]], [[1, "x"]], [["a", "b"]], 5, [5],
                                      [[1, "1", 2]]])
def test_boot_ids_that_are_none_are_corruption(tmp_path, boot_ids):
    starts(RealFilesystem(), str(tmp_path), 1)
    fields = json.loads((tmp_path / NODE_FILE).read_text())
    del fields["crc"]
    fields["lives"] = boot_ids
    (tmp_path / NODE_FILE).write_text(json.dumps({**fields, "crc": identity._crc(fields)}))
    with pytest.raises(CorruptFile, match="malformed"):
        identity.read(RealFilesystem(), str(tmp_path))


def test_a_file_that_nests_too_deeply_is_corruption(tmp_path):
    (tmp_path / NODE_FILE).write_text("[" * 4000)
    with pytest.raises(CorruptFile, match="not JSON"):
        identity.read(RealFilesystem(), str(tmp_path))


# ---- refused -------------------------------------------------------------------------------------


def test_a_refusal_is_kept_until_it_is_cleared_and_then_the_boot_id_is_one_of_its_own(tmp_path):
    disk, directory = RealFilesystem(), str(tmp_path)
    starts(disk, directory, 1)
    assert refusal_record.read(disk, directory) is None
    record = RefusalRecord(
        "node 3: it has started since", BootId(7, DURABLE | 70), 1_700_000_000_000
    )
    refusal_record.write(disk, directory, record)
    assert refusal_record.read(disk, directory) == record
    refusal_record.clear(disk, directory, record)
    assert refusal_record.read(disk, directory) is None
    claimed = starts(disk, directory, 2)
    assert claimed.boot_epoch == 8, "later than the life that it was compared with"
    assert BootHistory(claimed.boot_ids).origin_of(record.boot_id) is BootIdOrigin.OWN


def test_a_refusal_that_names_no_boot_id_is_cleared_as_well(tmp_path):
    disk, directory = RealFilesystem(), str(tmp_path)
    before = starts(disk, directory, 1)
    refusal_record.write(disk, directory, RefusalRecord("removed"))
    assert refusal_record.read(disk, directory) == RefusalRecord("removed", NO_BOOT_ID, 0)
    refusal_record.clear(disk, directory, RefusalRecord("removed"))
    assert identity.read(disk, directory).boot_ids == before.boot_ids


def test_clearing_that_is_cut_off_leaves_the_mark_or_a_cleared_directory():
    record = RefusalRecord("why", BootId(7, DURABLE | 70))
    fuse, blew = 0, True
    while blew:
        disk = SimulatedFilesystem()
        disk.make_directory("/d")
        disk.sync_directory("/")
        starts(disk, "/d", 1)
        refusal_record.write(disk, "/d", record)
        disk.operations_to_crash, blew = fuse, False
        try:
            refusal_record.clear(disk, "/d", record)
        except PowerLoss:
            blew = True
        disk.operations_to_crash = -1
        disk.power_loss(random.Random(fuse))
        if refusal_record.read(disk, "/d") is None:
            assert record.boot_id in identity.read(disk, "/d").boot_ids
        fuse += 1
    assert fuse > 3


def test_a_mark_that_rots_is_no_missing_one(tmp_path):
    disk, directory = RealFilesystem(), str(tmp_path)
    refusal_record.write(disk, directory, RefusalRecord("why"))
    path = tmp_path / refusal_record.REFUSED_FILE
    path.write_text(path.read_text().replace("why", "how"))
    with pytest.raises(CorruptFile):
        refusal_record.read(disk, directory)
