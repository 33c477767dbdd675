"""Both twins of the hot path, side by side, and golden bytes.

Contract.  A test that takes ``twin`` runs once per twin, named in its id, whatever MULTIRAFT_CORE
says; a test that compares them takes ``twins``.  A missing extension is an error, never a skip.
"""

from pathlib import Path

import pytest

from multiraft import _core
from multiraft.codec import reference

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=[reference, _core], ids=["reference", "compiled"])
def twin(request):
    return request.param


@pytest.fixture
def golden():
    """Bytes of a golden file: hex digits, ``#`` starts a comment."""
    def load(name: str) -> bytes:
        lines = (GOLDEN / name).read_text().splitlines()
        return bytes.fromhex("".join(line.partition("#")[0] for line in lines))
    return load
