"""Settings of consensus that contradict each other."""

from __future__ import annotations

import pytest

from multiraft.codec import layout
from multiraft.errors import ConfigError
from multiraft.raft.config import RaftConfig

LARGEST = layout.ENTRY_BYTES_MAX


def sized(uncommitted_bytes_max: int) -> RaftConfig:
    return RaftConfig(append_bytes_max=1 << 20, peer_window_bytes=1 << 20,
                      uncommitted_bytes_max=uncommitted_bytes_max)


@pytest.mark.parametrize("value", [1 << 20, LARGEST - 1])
def test_a_limit_below_the_largest_entry_is_refused_with_both_values(value):
    """Such an entry would be refused without end, although no other entries are pending."""
    with pytest.raises(ConfigError, match=f"uncommitted_bytes_max={value} .* {LARGEST} bytes"):
        sized(value).validate()


def test_a_limit_of_the_largest_entry_is_enough():
    assert sized(LARGEST).validate() == sized(LARGEST)


def test_who_knows_that_entries_are_smaller_may_say_so():
    assert sized(1 << 20).validate(entry_bytes_max=4096)
    with pytest.raises(ConfigError, match="must hold an entry of 2097152 bytes"):
        sized(1 << 20).validate(entry_bytes_max=2 << 20)
