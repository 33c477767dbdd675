"""The programs of docs/spark.md run as they are printed, but for the cluster's address."""

from __future__ import annotations

import csv
import itertools
import re
import sys

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

from admin_cli.main import cli  # noqa: E402
from multiraft.client.blocking import Record  # noqa: E402
from tests.tidy import tree  # noqa: E402

PAGE = (tree.ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
DEMO = "127.0.0.1:9401"
#: Of the data set's: the first ones, of some airlines each.
FLIGHTS = 2_000


def parts():
    """(language, text) of each block of the page, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
