"""The service manager hears that the node is ready, and that it stops."""

from __future__ import annotations

import socket

import pytest

from node.observability.sd_notify import READY, STOPPING, tell


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_whoever_listens_is_told(tmp_path, kind):
    name = str(tmp_path / "notify") if kind == "file" else f"@multiraft-test-{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        assert tell({"NOTIFY_SOCKET": name}, READY)
        assert tell({"NOTIFY_SOCKET": name}, STOPPING)
        assert [listener.recv(100), listener.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_without_a_service_manager_nothing_happens(tmp_path):
    assert not tell({}, READY)
    assert not tell({"NOTIFY_SOCKET": ""}, READY)
    assert not tell({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, READY)
