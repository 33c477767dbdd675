"""The client's page and the examples: each program runs against a real node, each table is true."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_cli.servers import TlsOptions
from multiraft import client as trio_client
from multiraft.client import blocking
from multiraft.client._accumulator import ProducerSettings
from multiraft.client._consumer_settings import ConsumerSettings
from tests.certificates import Authority
from tests.e2e import world as worlds
from tests.tidy import tree

PAGE = (tree.ROOT / "docs" / "client.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:9101"
EXAMPLES = sorted(path.name for path in (tree.ROOT / "examples").glob("*.py"))
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
#: Only a program that hangs takes so long.
PROGRAM_S = 300
WORDS_MAX = 3_000


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[worlds.World]:
    """Yield a cluster of one node: programs cannot see replication."""
    with worlds.start(tmp_path_factory.mktemp("cluster") / "dev", 1, 4, 1) as started:
        yield started


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Return a folder with the files that the TLS program of the page names."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "authority")
    shown = authority.issue("a-client.example.org")
    shutil.copy(authority.path, folder / "ca.pem")
    shutil.copy(shown.certificate, folder / "client.pem")
    shutil.copy(shown.key, folder / "client.key")
    node = authority.issue("127.0.0.1")
    shutil.copy(node.certificate, folder / "node.pem")
    shutil.copy(node.key, folder / "node.key")
    return folder


@pytest.fixture(scope="module")
def secure_world(tmp_path_factory, files) -> Iterator[worlds.World]:
    """Yield a cluster of one node that requires certificates of clients."""
    def configure(world):
        for node in world.ids():
            world.configure(node, f"""
[security]
client_certificate = "{files}/node.pem"
client_key = "{files}/node.key"
client_ca = "{files}/ca.pem"
""")

    tls = TlsOptions(str(files / "ca.pem"), str(files / "client.pem"), str(files / "client.key"))
    with worlds.start(tmp_path_factory.mktemp("secure") / "dev", 1, 4, 1, tls, configure) as made:
        yield made


def run(arguments: list[str], folder: Path, text: str = "") -> str:
    """Run a Python program in ``folder``; return what it printed."""
    done = subprocess.run([sys.executable, "-W", "error", *arguments], cwd=folder, input=text,
                          capture_output=True, text=True, timeout=PROGRAM_S,
                          env={**os.environ, "PYTHONPATH": str(tree.ROOT)})
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


def program_of(servers: list[str], program: str) -> list[str]:
    assert ADDRESS in program, "the page says that its programs expect this address"
    return ["-c", program.replace(ADDRESS, ",".join(servers))]


# ---- the page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_each_program_of_the_page_runs(request, tmp_path, number):
    program = PROGRAMS[number]
    if "TlsSettings(" in program:
        files = request.getfixturevalue("files")
        addresses = request.getfixturevalue("secure_world").addresses
        run(program_of(addresses, program), files)
    else:
        addresses = request.getfixturevalue("world").addresses
        assert run(program_of(addresses, program), tmp_path), "it prints nothing"


@pytest.mark.parametrize("number", [0, 1], ids=["trio", "blocking"])
def test_the_first_program_prints_what_the_page_shows_also_after_the_session_of_the_readme(
        world, tmp_path, number):
    shown = re.search("^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
    with blocking.Client(",".join(world.addresses)) as client:
        with contextlib.suppress(blocking.UnknownTopic):
            client.delete_topic("greetings")
        assert run(program_of(world.addresses, PROGRAMS[number]), tmp_path) == shown
        client.delete_topic("greetings")
        client.create_topic("greetings")
        with client.producer() as producer:
            producer.send_many("greetings", [b"%d" % line for line in range(1, 2_001)])
    assert "after the session of the README, with 2,000 records in one partition, the first run " \
           "prints partition 0 and offset 2000" in PAGE
    assert run(program_of(world.addresses, PROGRAMS[number]), tmp_path) == (
        "partition 0 offset 2000\n0 2000 b'you' b'hello'\n")


def test_the_program_that_resumes_reads_only_what_is_new(world, tmp_path):
    (program,) = (each for each in PROGRAMS if "positions.json" in each)
    run(program_of(world.addresses, program), tmp_path)
    for _ in range(2):
        assert run(program_of(world.addresses, program), tmp_path) == "did b'something to do'\n"


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its first two lines."""
    part = PAGE.split(f"{heading}\n", 1)[1]
    lines = re.search(r"((?:^\|.*\n)+)", part, re.MULTILINE)[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("heading, settings", [
    ("### Settings of `client.producer()`", ProducerSettings),
    ("### Settings of `client.consume()`", ConsumerSettings)])
def test_tables_name_each_setting_with_its_default(heading, settings):
    shown = [(name.strip("`"), default.strip("`").replace('"', "'"))
             for name, default, _ in rows(heading)]
    assert shown == [(field.name, repr(field.default)) for field in dataclasses.fields(settings)]
    assert all(len(meaning) > 20 for _, _, meaning in rows(heading))


def test_every_error_that_is_exported_is_in_the_table_and_the_other_way_round():
    named = {name for row in rows("## Errors") for name in re.findall(r"`(\w+)`", row[0])}
    exported = {name for name in blocking.__all__
                if isinstance(getattr(blocking, name), type)
                and issubclass(getattr(blocking, name), Exception)}
    bases = {"MultiRaftError", "RequestError"}
    assert named == exported - bases - {"RecordsNotSent"}
    assert "RecordsNotSent" in PAGE


def test_errors_without_an_effect_are_definite():
    for names, after, _ in rows("## Errors"):
        for name in re.findall(r"`(\w+)`", names):
            kind = getattr(blocking, name)
            if hasattr(kind, "definite"):
                assert kind.definite == (after != "may have happened"), name


def test_the_page_is_short_and_names_each_example():
    assert len(PAGE.split()) <= WORDS_MAX
    assert {*re.findall(r"\]\(\.\./examples/(\w+\.py)\)", PAGE)} == {*EXAMPLES}


# ---- the examples -------------------------------------------------------------------------------


def example(name: str) -> str:
    return str(tree.ROOT / "examples" / name)


def test_lines_are_produced_with_their_offsets_and_consumed_once(world, tmp_path):
    servers = ",".join(world.addresses)
    shown = run([example("produce.py"), servers, "words"], tmp_path, "to be or\nnot to be\n")
    places = re.findall(r"^partition (\d), offset (\d)$", shown, re.MULTILINE)
    assert len(places) == len({*places}) == 2
    counting = [example("consume_to_sqlite.py"), servers, "words", "counts.db"]
    assert run(counting, tmp_path) == "be 2\nnot 1\nor 1\nto 2\n"
    assert run(counting, tmp_path) == "be 2\nnot 1\nor 1\nto 2\n", "nothing is counted twice"
    run([example("produce.py"), servers, "words"], tmp_path, "not now\n")
    assert run(counting, tmp_path) == "be 2\nnot 2\nnow 1\nor 1\nto 2\n"


def test_counts_and_positions_are_stored_together_or_not_at_all(world, tmp_path):
    """A run that dies in the middle of a batch leaves both as they were."""
    servers = ",".join(world.addresses)
    run([example("produce.py"), servers, "halves"], tmp_path, "one\n")
    source = Path(example("consume_to_sqlite.py")).read_text()
    dying = source.replace('    database.execute("INSERT OR REPLACE', "    raise SystemExit(3)\n"
                           '    database.execute("INSERT OR REPLACE')
    assert dying != source
    done = subprocess.run([sys.executable, "-c", dying, servers, "halves", "halves.db"],
                          cwd=tmp_path, timeout=PROGRAM_S,
                          env={**os.environ, "PYTHONPATH": str(tree.ROOT)})
    assert done.returncode == 3
    database = sqlite3.connect(tmp_path / "halves.db")
    assert [*database.execute("SELECT * FROM words")] == []
    database.close()
    assert run([example("consume_to_sqlite.py"), servers, "halves", "halves.db"],
               tmp_path) == "one 1\n"


def test_a_script_reads_what_it_wrote(world, tmp_path):
    shown = run([example("script.py"), ",".join(world.addresses), "readings"], tmp_path)
    assert sorted(int(line.split()[1]) for line in shown.splitlines()) == [*range(20, 30)]


def test_a_thread_publishes_for_asyncio(world, tmp_path):
    shown = run([example("publisher_thread.py"), ",".join(world.addresses), "clicks"], tmp_path)
    assert shown == f"stored at {[*range(20)]}\n"


def test_tls_is_used_and_its_errors_are_one_line(secure_world, files, tmp_path):
    servers = secure_world.addresses[0]
    tls = trio_client.TlsSettings(str(files / "ca.pem"), str(files / "client.pem"),
                                  str(files / "client.key"))
    with blocking.Client(servers, tls=tls) as client:
        client.create_topic("hidden", if_not_exists=True)
    shown = run([example("secure.py"), servers, "ca.pem", "client.pem", "client.key"], files)
    assert "hidden 1" in shown.splitlines()
    for arguments, text in ((["none.pem"], "none.pem"), (["ca.pem"], servers)):
        done = subprocess.run([sys.executable, example("secure.py"), servers, *arguments],
                              cwd=files, capture_output=True, text=True, timeout=PROGRAM_S,
                              env={**os.environ, "PYTHONPATH": str(tree.ROOT)})
        assert done.returncode == 1 and text in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_topic_is_copied_and_its_copy_continued(world, tmp_path):
    servers = ",".join(world.addresses)
    copying = [example("copy_topic.py"), servers, "original", servers, "copy", "positions.json"]
    run([example("produce.py"), servers, "original"], tmp_path, "a\nb\nc\n")
    assert run(copying, tmp_path) == "3 records copied\n"
    run([example("produce.py"), servers, "original"], tmp_path, "d\n")
    assert run(copying, tmp_path) == "1 records copied\n"
    with blocking.Client(servers) as client:
        found = {topic: [(batch.partition, record.offset, record.key, record.value,
                          record.timestamp_ms, record.headers)
                         for batch in client.consume(topic, until_end=True) for record in batch]
                 for topic in ("original", "copy")}
    assert sorted(found["copy"], key=str) == sorted(found["original"], key=str)
    assert len(found["copy"]) == 4
