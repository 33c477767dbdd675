"""The compiled codec is there, is the one these sources make, and is chosen in one place."""

from __future__ import annotations

import hashlib
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from multiraft.kafka import _codec, generic_decoder, hot_messages, schema
from multiraft.kafka.messages.fetch import FetchRequest

PACKAGE = Path(schema.__file__).parent
PARTS = sorted(f"codec_parts/{path.name}" for path in (PACKAGE / "codec_parts").glob("*.pxi"))
SOURCES = ("_codec.pyx", *PARTS, "../_bytes.h")
#: Printing a variable takes make milliseconds; only a make that hangs needs so long.
MAKE_S = 60


def test_the_compiled_codec_was_built_from_these_sources():
    digest = hashlib.sha256(b"".join((PACKAGE / name).read_bytes() for name in SOURCES))
    assert _codec.__file__.endswith(".so")
    assert _codec.SOURCE_DIGEST == digest.hexdigest(), "stale extension: run `make build`"


def test_the_top_file_includes_each_part_once():
    included = re.findall(r'^include "(.+)"$', (PACKAGE / "_codec.pyx").read_text(), re.MULTILINE)
    assert PARTS and sorted(included) == PARTS


def test_a_changed_source_makes_make_build_again():
    done = subprocess.run(["make", "--silent", "--eval=listed:; @echo $(SOURCES)", "listed"],
                          cwd=PACKAGE.parents[1], capture_output=True, text=True, timeout=MAKE_S)
    assert done.returncode == 0, done.stderr
    assert {f"multiraft/kafka/{name}" for name in SOURCES[:-1]} <= set(done.stdout.split())


def test_the_environment_chooses_the_codec(monkeypatch):
    try:
        monkeypatch.setenv("MULTIRAFT_CORE", "reference")
        chosen = importlib.reload(hot_messages)
        assert chosen.decode is generic_decoder.decode and chosen.FetchRequest is FetchRequest
        monkeypatch.setenv("MULTIRAFT_CORE", "compiled")
        assert importlib.reload(hot_messages).FetchRequest is _codec.FetchRequest
    finally:
        monkeypatch.undo()
        importlib.reload(hot_messages)


@pytest.mark.parametrize("choice,missing,text", [
    ("fast", "nothing", "'fast'"), ("compiled", "multiraft.kafka._codec", "make build")])
def test_a_choice_that_is_not_there_is_an_error(monkeypatch, choice, missing, text):
    monkeypatch.setenv("MULTIRAFT_CORE", choice)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "multiraft.kafka.hot_messages")
    with pytest.raises(ImportError, match=text):
        importlib.import_module("multiraft.kafka.hot_messages")
