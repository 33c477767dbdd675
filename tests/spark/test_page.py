"""The programs of docs/spark.md run as printed, apart from the cluster's address."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

from admin_cli.main import cli  # noqa: E402
from multiraft.client.blocking import Record  # noqa: E402
from tests.tidy import tree  # noqa: E402

PAGE = (tree.ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
DEMO = "127.0.0.1:9501"
#: Airline -> minutes that its flights were late; NA = it never arrived.
LATE = {"AA": ("10", "20", "NA"), "UA": ("-5", "0"), "HA": ("30",)}


def blocks():
    """Return (language, text) of each block of the page, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def flight(minutes, carrier, number):
    """Return a line of the data set, as the demo appends it."""
    return (f"2013,1,1,517,515,2,830,819,{minutes},{carrier},{number},N14228,EWR,IAH,227,1400,5,"
            f"15,2013-01-01T10:00:00Z").encode()


@pytest.fixture
def flights(world):
    """Create the demo's topics, smaller."""
    with world.client() as client:
        for carrier in LATE:
            client.create_topic(f"flights-{carrier}")
        with client.producer() as producer:
            for carrier, late in LATE.items():
                for number, minutes in enumerate(late):
                    producer.send(Record(f"flights-{carrier}", flight(minutes, carrier, number),
                                         b"%d" % number))


def test_every_program_of_the_page_runs_as_it_stands(spark, world, flights, tmp_path, monkeypatch,
                                                     capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULTIRAFT_SERVERS", ",".join(world.addresses))
    named = {}
    ran = {"python": 0, "console": 0}
    for language, text in blocks():
        ran[language] += 1
        if language == "console":
            for line in text.splitlines():
                done = CliRunner().invoke(cli, shlex.split(line.removeprefix("$ multiraft ")))
                assert not done.exit_code, done.output
        else:
            assert "9501" in text
            # The session's JVM has another working directory: relative paths become absolute ones.
            text = text.replace("delays.checkpoint", str(tmp_path / "delays.checkpoint"))
            exec(compile(text.replace(DEMO, world.addresses[0]), "docs/spark.md", "exec"), named)
    assert ran == {"python": 3, "console": 1}
    assert {(row.carrier, row.flights, row.late_minutes) for row in named["latest"]} == {
        ("AA", 3, 15.0), ("UA", 2, -2.5), ("HA", 1, 30.0)}
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert "flights-AA" in capfd.readouterr().out


def test_all_that_the_page_shows_is_run():
    """An indented block would be left out."""
    assert not re.search(r"^    \S", PAGE, re.MULTILINE)
    assert len(blocks()) == PAGE.count("\n```") // 2
