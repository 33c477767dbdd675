"""A machine without a command or root: errors name the remedy, and its tests are skipped with
it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from chaos.backends import host, ledger, probes
from chaos.backends.backend import HUNG_DISK, LOSS, PARTITION
from tests import needs


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Return a machine without commands."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_command_that_is_missing_is_named_with_what_brings_it(bare):
    assert host.lacking("ip", "iptables-restore", "nsenter") == (
        "ip, iptables-restore, nsenter missing. "
        "Run as root: apt-get install -y iproute2 iptables util-linux")
    assert host.lacking() == ""


def test_a_fault_that_lacks_a_command_is_left_out_with_what_brings_it(bare, tmp_path, monkeypatch):
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path)
    out = probes.left_out(ledger.ResourceLedger.open())
    assert "Run as root: apt-get install -y iproute2 iptables util-linux" in out[PARTITION]
    assert "Run as root: apt-get install -y e2fsprogs mount util-linux" in out[HUNG_DISK]


def test_every_command_of_the_probes_has_a_package():
    assert {*probes.NETWORK_COMMANDS, *probes.DISK_COMMANDS} <= host.PACKAGES.keys()


def test_a_test_is_skipped_for_each_fault_that_it_needs_and_cannot_have(monkeypatch):
    cluster = SimpleNamespace(left_out={PARTITION: "no rules. Run: this", HUNG_DISK: "no disk"})
    needs.faults(cluster, LOSS)
    monkeypatch.setattr(host, "is_root", lambda: True)
    with pytest.raises(pytest.skip.Exception) as skipped:
        needs.faults(cluster, LOSS, PARTITION, HUNG_DISK)
    assert skipped.value.msg == (f"{needs.SKIPPED}{PARTITION}: no rules. Run: this; "
                                 f"{HUNG_DISK}: no disk")
    monkeypatch.setattr(host, "is_root", lambda: False)
    with pytest.raises(pytest.skip.Exception, match="Run as root: make test"):
        needs.faults(cluster, PARTITION)


def test_whoever_lacks_root_is_told_to_be_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    mark = needs.root("a disk takes root").mark
    assert mark.args == (True,) and mark.kwargs["reason"].endswith("Run as root: make test")
