"""Methods of the clients, made from operations: one line each, with signature and docstring.

Contract.  An operation is a function that returns a generator (see ``_steps.py``).  Its first
parameter is the core that it works on; a method takes the core from ``self._core`` and gives
the generator to ``self._run``.  Parameters, result and docstring of the method are those of the
operation: type checkers take them from the annotations here, ``help`` from the function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args

from multiraft.client._steps import Operation

_Machine = TypeVar("_Machine")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def blocking_method(operation: Callable[Concatenate[_Machine, _Parameters], Operation[_Result]],
                    ) -> Callable[Concatenate[Any, _Parameters], _Result]:
    """Return the method of a blocking class that runs ``operation`` and returns its result."""

    def method(self: Any, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return self._run(operation(self._core, *args, **kwargs))

    return _described(method, operation)


def async_method(operation: Callable[Concatenate[_Machine, _Parameters], Operation[_Result]],
                 ) -> Callable[Concatenate[Any, _Parameters], Coroutine[Any, Any, _Result]]:
    """Return the method of an asynchronous class that runs ``operation``; its coroutine returns
    the result."""

    async def method(self: Any, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return await self._run(operation(self._core, *args, **kwargs))

    return _described(method, operation)


def _described(method: Any, operation: Callable) -> Any:
    """Give ``method`` the name, docstring and signature of ``operation``."""
    functools.update_wrapper(method, operation)
    method.__qualname__ = operation.__name__
    signature = inspect.signature(operation, eval_str=True)
    machine, *parameters = signature.parameters.values()
    result = get_args(signature.return_annotation)[2]  # of Generator[step, sent, result]
    if result is type(None):
        result = None
    method.__signature__ = signature.replace(
        parameters=[machine.replace(name="self", annotation=inspect.Parameter.empty),
                    *parameters], return_annotation=result)
    method.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters
                              } | {"return": result}
    return method
