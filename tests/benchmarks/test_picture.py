"""Pictures of benchmarks: drawn from the lines that a benchmark prints."""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from benchmarks import figures, picture
from benchmarks.figures import Series, bound, compare

OURS = Series("ours", "MB/s", (80.0, 90.0, 100.0))
NATS = Series("NATS", "MB/s", (100.0, 110.0, 120.0))
FIGURES = [compare("appends", OURS, NATS, 0.8, at_least=True),
           bound("failover", Series("time", "s", (1.0, 1.5, 2.5)), 2.0, at_least=False, worst=True),
           compare("frames of an idle cluster", Series("ours", "frames/s", (0.0,)),
                   Series("yardstick", "frames/s", (0.0,)), 1.2, at_least=False)]
LINES = [json.loads(figure.as_json()) for figure in FIGURES]


def test_a_target_is_in_the_unit_of_its_figure():
    assert [picture.target_of(line) for line in LINES] == [pytest.approx(88.0), 2.0, None]


def test_the_judgement_is_in_words():
    assert [picture.verdict_of(line) for line in LINES] == [
        "0.818 x NATS, target at least 0.8: held",
        "judged 2.5, target at most 2: missed",
        "1 x yardstick, target at most 1.2: held"]


def test_the_same_figures_are_the_same_picture(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        picture.draw("First light", LINES, path)
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text()
    assert all(colour in text for colour in (picture.OURS, picture.YARDSTICK, picture.TARGET))


def test_a_benchmark_draws_what_it_prints(tmp_path, capsys):
    path = tmp_path / "bench.svg"
    figures.show("First light", FIGURES, (), path)
    printed = capsys.readouterr().out
    lines = tmp_path / "figures.jsonl"
    lines.write_text("not a figure\n" + printed)
    again = tmp_path / "again.svg"
    assert run_picture(str(lines), str(again), "--title", "First light") == 0
    assert again.read_bytes() == path.read_bytes()


def run_picture(*words):
    argv = sys.argv
    sys.argv = ["picture", *words]
    try:
        return picture.main()
    finally:
        sys.argv = argv


def test_a_file_without_figures_is_named(tmp_path, capsys):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("nothing\n")
    assert run_picture(str(empty), str(tmp_path / "x.svg")) == 1
    assert "has no figures of a benchmark" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bench.png", "nowhere/bench.svg"])
def test_another_file_is_refused_before_anything_is_measured(name, tmp_path, capsys):
    parser = argparse.ArgumentParser()
    figures.add_picture_option(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--picture", str(tmp_path / name)])
    assert "is no .svg file" in capsys.readouterr().err
