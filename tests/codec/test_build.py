"""The extension is there, is the one these sources make, and is chosen in one place."""

import hashlib
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multiraft import _core
from multiraft import core as chosen
from multiraft.codec import layout, reference

PACKAGE = Path(_core.__file__).parent
#: Printing a variable takes make milliseconds; only a make that hangs needs so long.
MAKE_S = 60
PARTS = sorted(f"core_parts/{path.name}" for path in (PACKAGE / "core_parts").glob("*.pxi"))
SOURCES = ("_core.pyx", "_core.pxd", *PARTS, "_bytes.h", "_crc32c.h", "_disk.h", "_index.h",
           "_index_rows.h")


def test_compiled_twin_is_a_compiled_module():
    assert _core.__file__.endswith(".so")


def test_compiled_twin_was_built_from_these_sources():
    digest = hashlib.sha256(b"".join((PACKAGE / name).read_bytes() for name in SOURCES))
    assert _core.SOURCE_DIGEST == digest.hexdigest(), "stale extension: run `make build`"


def test_the_top_file_includes_each_part_once():
    included = re.findall(r'^include "(.+)"$', (PACKAGE / "_core.pyx").read_text(), re.MULTILINE)
    assert PARTS and sorted(included) == PARTS


def test_a_changed_source_makes_make_build_again():
    done = subprocess.run(["make", "--silent", "--eval=listed:; @echo $(SOURCES)", "listed"],
                          cwd=PACKAGE.parent, capture_output=True, text=True, timeout=MAKE_S)
    assert done.returncode == 0, done.stderr
    assert {f"multiraft/{name}" for name in SOURCES} <= set(done.stdout.split())


def test_chooser_takes_what_the_environment_says(monkeypatch):
    try:
        for choice, module in (("reference", reference), ("compiled", _core)):
            monkeypatch.setenv("MULTIRAFT_CORE", choice)
            assert importlib.reload(chosen).check_batch is module.check_batch
    finally:
        monkeypatch.undo()
        importlib.reload(chosen)


def test_chooser_refuses_an_unknown_choice(monkeypatch):
    monkeypatch.setenv("MULTIRAFT_CORE", "fast")
    with pytest.raises(ImportError, match="'fast'"):
        _import_afresh(monkeypatch)


def test_chooser_says_what_to_do_when_the_extension_is_missing(monkeypatch):
    monkeypatch.setenv("MULTIRAFT_CORE", "compiled")
    monkeypatch.setitem(sys.modules, "multiraft._core", None)
    with pytest.raises(ImportError, match="make build"):
        _import_afresh(monkeypatch)


def _import_afresh(monkeypatch):
    """Import the chooser again, without a change of the module that other tests use."""
    monkeypatch.delitem(sys.modules, "multiraft.core")
    importlib.import_module("multiraft.core")


def test_compiled_twin_refuses_another_layout(monkeypatch):
    monkeypatch.setattr(layout, "ENTRY_DURABLE_AT", 48)
    with pytest.raises(AssertionError, match="ENTRY_DURABLE_AT=56"):
        _core._assert_layout()


def test_reference_refuses_another_layout(monkeypatch):
    monkeypatch.setattr(layout, "ENTRY_DURABLE_AT", 48)
    spec = importlib.util.spec_from_file_location("reference_again", reference.__file__)
    with pytest.raises(AssertionError):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
