"""Fuzz targets with a fixed number of inputs each; `make fuzz` searches longer."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.found import FOUND
from tests.fuzz.targets import TARGETS, run

#: Memory of a decoder: at most this multiple of its input, and this many bytes in any case.
TIMES_INPUT, BYTES_ANYWAY = 200, 16 << 20


@st.composite
def bytes_near(draw, seeds: list[bytes]):
    """Return a strategy of seeds with some places changed, removed, doubled or replaced by parts of
    others, and of arbitrary bytes."""
    if not seeds or draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.sampled_from((0, 1, 1, 2, 4, 5, 8, 9, 40))))
        data[begin:end] = draw(st.one_of(
            st.binary(max_size=9), st.just(bytes(data[begin:end]) * 2),
            st.sampled_from((b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80", b"\x00" * 4, b"\x9f",
                             b"\xbf", b"\x1b" + b"\xff" * 8, b"\xf6", b"\xf9\x7e\x00", b"\xc2\x41",
                             b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x81" * 600))))
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_accepted(name):
    seeds = TARGETS[name].seeds()
    assert seeds
    assert any(run(name, seed) for seed in seeds), f"{name} accepts none of its seeds"


@pytest.mark.parametrize("name,digits", FOUND)
def test_what_was_found_once_is_refused(name, digits):
    assert not run(name, bytes.fromhex(digits))


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_accepted_or_refused(name):
    @settings(max_examples=400, suppress_health_check=list(HealthCheck))
    @given(bytes_near(TARGETS[name].seeds()))
    @example(b"")
    def search(data: bytes) -> None:
        run(name, data)

    search()


@pytest.mark.parametrize("name", TARGETS)
def test_memory_stays_in_proportion(name):
    @settings(max_examples=20, suppress_health_check=list(HealthCheck))
    @given(bytes_near(TARGETS[name].seeds()))
    @example(b"\x9b\x00\x00\x00\x7f\xff\xff\xff\xff")
    @example(b"\x5b\x00\x00\x00\x7f\xff\xff\xff\xff")
    def search(data: bytes) -> None:
        tracemalloc.start()
        try:
            run(name, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < BYTES_ANYWAY + TIMES_INPUT * len(data), f"{peak} B for {len(data)} B"

    search()
