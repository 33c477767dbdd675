"""The fakes are called as the client is: what the real one refuses must not pass here."""

from __future__ import annotations

import inspect

import pytest

from multiraft.client import blocking
from tests.admin_cli import fakes

SHARED = sorted(name for name, _ in inspect.getmembers(fakes.FakeClient, inspect.isfunction)
                if not name.startswith("_") and hasattr(blocking.Client, name))


def required(function) -> list[str]:
    """Names of the arguments that a caller must give."""
    return [name for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]


@pytest.mark.parametrize("name", SHARED)
def test_a_fake_asks_for_what_the_client_asks_for(name):
    real, fake = getattr(blocking.Client, name), getattr(fakes.FakeClient, name)
    assert len(required(real)) == len(required(fake)), name
