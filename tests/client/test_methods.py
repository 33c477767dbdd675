"""Methods of both clients: each is made from one operation and shows its help to callers."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pydoc
import typing

import pytest

from multiraft import client as trio_client
from multiraft.client import (
    _operations,
    _placements,
    _plans,
    _record_deletion,
    _sizes,
    _topic_settings,
    blocking,
)
from multiraft.client._accumulator import ProducerSettings
from multiraft.client._client import ClientCore
from multiraft.client._consumer_settings import ConsumerSettings

#: Operations that no method of a client offers: ``multiraft.client.ranges`` runs it.
NOT_METHODS = ("list_many_offsets",)
OPERATIONS = {name: function for module in (
                  _operations, _placements, _plans, _record_deletion, _sizes, _topic_settings)
              for name, function in inspect.getmembers(module, inspect.isfunction)
              if function.__module__ == module.__name__ and not name.startswith("_")
              and name not in NOT_METHODS}
PAIRS = [(getattr(trio_client.Client, name), getattr(blocking.Client, name))
         for name in OPERATIONS] + [
    (getattr(trio_client.Producer, name), getattr(blocking.Producer, name))
    for name in ("close", "flush", "send_many")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_takes_the_core_and_is_a_generator(name):
    function = OPERATIONS[name]
    first, *_ = inspect.signature(function, eval_str=True).parameters.values()
    assert first.annotation is ClientCore
    assert inspect.isgeneratorfunction(function)


@pytest.mark.parametrize("asynchronous, blocked", PAIRS, ids=lambda method: method.__name__)
def test_both_methods_show_one_signature_and_docstring(asynchronous, blocked):
    assert inspect.iscoroutinefunction(asynchronous)
    assert not inspect.iscoroutinefunction(blocked)
    signature = inspect.signature(blocked)
    assert signature == inspect.signature(asynchronous)
    assert next(iter(signature.parameters)) == "self"
    hints = typing.get_type_hints(blocked)
    assert set(hints) == {*signature.parameters} - {"self"} | {"return"}
    for method in (asynchronous, blocked):
        shown = pydoc.plain(pydoc.render_doc(method))
        assert method.__doc__.splitlines()[0] in shown


def test_help_of_a_method_is_that_of_its_operation():
    shown = pydoc.plain(pydoc.render_doc(blocking.Client.delete_topic))
    assert "delete_topic(self, name: str, incarnation: int = 0) -> None" in shown
    assert "Raises ``UnknownTopic``" in shown


def test_wrong_arguments_are_refused_by_name(client):
    with pytest.raises(TypeError, match=r"create_topic\(\) missing 1 required positional argument"):
        client.create_topic()
    with pytest.raises(TypeError, match="unexpected keyword argument 'parts'"):
        client.create_topic("a", parts=2)


@pytest.mark.parametrize("client_class", [trio_client.Client, blocking.Client],
                         ids=["trio", "blocking"])
@pytest.mark.parametrize("method, settings", [("producer", ProducerSettings),
                                              ("consume", ConsumerSettings)])
def test_help_names_each_setting_with_its_default(client_class, method, settings):
    shown = inspect.getdoc(getattr(client_class, method))
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("    ")
              and "=" in line.split()[0] and not line.startswith("     ")]
    expected = [(field.name, field.default) for field in dataclasses.fields(settings)]
    assert listed == [f"{name}={json.dumps(value) if type(value) is str else value}"
                      for name, value in expected]
