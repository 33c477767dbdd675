"""Dialling nodes whose addresses lead nowhere."""

from __future__ import annotations

import pytest
import trio

from node.peers.dial import dial


@pytest.mark.parametrize("host", ["..", "x" * 80, "\udcff", "ü-.invalid"])
def test_a_host_that_cannot_be_looked_up_is_a_node_that_is_away(host):
    """The nodes of an earlier release's cluster may have such an address."""
    assert trio.run(dial, host, 9201) is None
