"""Taking part, and being told that one may not."""

import pytest
import trio.testing

from multiraft.storage.filesystem import RealFilesystem
from multiraft.wire.errors import Code
from node import admission as admission_module
from node.admission import Admission
from node.errors import NodeRefused
from node.known_nodes import read
from tests.node.harness import in_trio, silent_log
from tests.node.test_known_nodes import new_cluster


@in_trio
@pytest.mark.parametrize(("nodes", "enough"), [(2, 1), (3, 2), (4, 2), (5, 3)])
async def test_a_majority_of_the_others_admits(tmp_path, nodes, enough):
    known = new_cluster(tmp_path, nodes)
    admission = Admission(known, silent_log())
    passed = []

    async def wait():
        await admission.passed()
        passed.append(read(RealFilesystem(), str(tmp_path)).admitted)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for peer in range(2, 2 + enough):
            await trio.testing.wait_all_tasks_blocked()
            assert not passed
            admission.welcomed(peer)
            admission.welcomed(peer)  # it reconnects: still one
    assert passed == [True], "and it is durable"


@pytest.mark.parametrize(("code", "way_out"), [
    (Code.WRONG_INCARNATION, "comes back only as a new one"),
    (Code.NODE_REMOVED, "under another id"),
    (Code.STALE_LIFE, "copy of a data directory"),
])
def test_what_will_never_change_ends_the_node_with_the_way_out(tmp_path, code, way_out):
    admission = Admission(new_cluster(tmp_path), silent_log())
    with pytest.raises(NodeRefused, match=way_out) as raised:
        admission.refused(2, code, "no")
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("code", [0, Code.UNKNOWN_NODE, Code.WRONG_CLUSTER, Code.INVALID_REQUEST])
def test_what_may_change_is_said_once_and_asked_again(tmp_path, caplog, code):
    admission = Admission(new_cluster(tmp_path), silent_log())
    for _ in range(3):
        admission.refused(2, code, "not yet")
    assert len(caplog.records) == 1
    admission.welcomed(2)
    admission.refused(2, code, "not yet")
    assert len(caplog.records) == 2


def test_a_twin_that_lives_is_waited_for_only_so_long(tmp_path, monkeypatch):
    now = [1_000]
    monkeypatch.setattr(admission_module, "monotonic_ms", lambda: now[0])
    admission = Admission(new_cluster(tmp_path), silent_log())
    admission.refused(2, Code.NODE_RUNS, "node 1 runs already")
    now[0] += admission_module.TWIN_PATIENCE_MS - 1
    admission.refused(2, Code.NODE_RUNS, "node 1 runs already")
    admission.welcomed(2)  # the old life's connections were only slow to end
    now[0] += 10
    admission.refused(2, Code.NODE_RUNS, "node 1 runs already")
    now[0] += admission_module.TWIN_PATIENCE_MS
    with pytest.raises(NodeRefused, match="original"):
        admission.refused(2, Code.NODE_RUNS, "node 1 runs already")
