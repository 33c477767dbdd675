"""Retries of administrative requests: which node to ask next, when, and for how long.

Contract.  ``ask`` and ``ask_node`` are parts of operations (see ``_steps.py``); an operation calls
them with ``yield from``.

Theory.  Each request is repeated until a node answers it or its time limit is reached, also after
an answer was lost.  Repetition is safe: either the request names the change, so that a second
execution has no effect, or the operation looks up the outcome first (``_repeating.py``).  A change
that was not answered in time ends as ``AmbiguousOutcome``, and the caller may request it again.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping

from multiraft.client._client import ClientCore
from multiraft.client._network import Lost, NoNodeAnswered, backoff_ms, parse_address
from multiraft.client._repeating import changes, may_have_happened
from multiraft.client._steps import Exchange, Operation, Pause
from multiraft.wire import messages
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    InvalidRequest,
    RequestError,
    TimedOut,
    exception_for,
)

#: Time for which an operation is retried after retriable refusals.
OPERATION_TIMEOUT_MS = 10_000
#: Time for one node to answer: shorter than the whole, so that another node can be asked.
EXCHANGE_TIMEOUT_MS = 5_000

#: Empty mapping: no refusal means that a request was carried out.
NOTHING_HAPPENED: Mapping[int, Any] = MappingProxyType({})


def ask(core: ClientCore, request: messages.Request, repeatable: bool = True, address: str = "",
        happened: Mapping[int, Any] = NOTHING_HAPPENED) -> Operation[Any]:
    """Return the reply of any node (or of the one at ``address``), repeating the request after
    pauses and following redirects to the right node.

    ``repeatable`` False = do not repeat it after a lost answer.  ``happened`` maps refusals to
    replies: a refusal that comes after a lost answer means that the request was carried out, and
    the reply of the mapping is returned.

    Raises ``RequestError`` for a refusal that another try does not change, ``TimedOut`` or
    ``NoNodeAnswered`` at the time limit, ``AmbiguousOutcome`` when a change may have happened."""
    failures, hint, avoid, answered = 0, "", "", False
    perhaps = False
    begun_ms = core.now_ms
    while True:
        if perhaps and core.ended is not None:  # the client ended, so no node is asked again
            raise AmbiguousOutcome(f"{messages.OPS[type(request)]}: it may have happened, an "
                                   f"answer was lost; {core.ended}") from core.ended
        target = address or hint or core.network.any_address(core.now_ms, avoid)
        if target is not None:
            outcome = yield Exchange(target, request, _exchange_ms(core, target, address))
            if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
                return outcome.reply
            answered |= isinstance(outcome, ResponseEvent)
            if perhaps and isinstance(outcome, ResponseEvent) and outcome.code in happened:
                return happened[outcome.code]
            perhaps |= changes(request) and may_have_happened(outcome)
            if perhaps and core.ended is not None:
                continue
            hopeless = not answered and _is_hopeless(core, begun_ms, address)
            try:
                hint = _judge(core, request, target, outcome, repeatable, begun_ms, hopeless)
            except (RequestError, NoNodeAnswered) as error:
                if perhaps and (hopeless or isinstance(error, RequestError) and error.retriable):
                    raise AmbiguousOutcome(
                        f"{messages.OPS[type(request)]}: it may have happened, an answer was "
                        f"lost; last: {error}. Ask again") from error
                raise
            avoid = target if isinstance(outcome, Lost) else ""
        elif not answered and _is_hopeless(core, begun_ms, address):
            if perhaps:
                raise AmbiguousOutcome(f"{messages.OPS[type(request)]}: it may have happened, "
                                       "an answer was lost; no node answers now. Ask again")
            raise NoNodeAnswered(core.network.errors())
        failures += 1
        yield Pause(backoff_ms(core.limits, failures, core.rng))


def ask_node(core: ClientCore, request: messages.Request, address: str,
             timeout_ms: int) -> Operation[Any]:
    """Return the reply of the node at ``address`` about itself.

    With ``timeout_ms`` above 0 the node is asked once. Raises ``TimedOut`` then if it does not
    answer in that time, ``InvalidRequest`` for a request that cannot be sent, and the error of a
    refusal. Raises ``ConfigError`` for an invalid address. With 0, raises as ``ask``; an empty
    address then stands for any node."""
    if address or timeout_ms:
        parse_address(address)
    if not timeout_ms:
        return (yield from ask(core, request, address=address))
    outcome = yield Exchange(address, request, timeout_ms)
    if isinstance(outcome, Lost):
        if outcome.impossible:
            raise InvalidRequest(outcome.why)
        raise TimedOut(f"{messages.OPS[type(request)]}: {address}: {outcome.why}")
    if outcome.code != Code.OK:
        raise exception_for(outcome.code, outcome.error)
    return outcome.reply


def _exchange_ms(core: ClientCore, target: str, address: str) -> int:
    """Return the time for ``target`` to answer: to connect only, while another address was never
    asked, so that some addresses which are silent do not use up the time of the others."""
    network = core.network
    if not address and not network.is_open(target) and network.has_untried(target):
        return min(core.limits.connect_timeout_ms, EXCHANGE_TIMEOUT_MS)
    return EXCHANGE_TIMEOUT_MS


def _is_hopeless(core: ClientCore, begun_ms: int, address: str) -> bool:
    """Return True if a request that no node has answered since ``begun_ms`` is given up."""
    # An address that drops packets takes a whole connect timeout, and a node that hangs may answer
    # later.  So these and addresses that were not asked get the full time of an operation.
    patience_ms = core.limits.unreachable_ms
    if not address and core.network.has_undecided():
        patience_ms = max(patience_ms, OPERATION_TIMEOUT_MS)
    return core.now_ms - begun_ms >= patience_ms


def _judge(core: ClientCore, request: messages.Request, target: str,
           outcome: ResponseEvent | Lost, repeatable: bool, begun_ms: int,
           hopeless: bool) -> str:
    """Return the address to ask next ("" = any) after a refusal by ``target`` or a lost answer.

    ``hopeless``: no node has answered, and none is waited for any longer.  Raises the error that
    ends the operation: a refusal after which the request may not be repeated, or that comes at the
    time limit; for a lost answer ``InvalidRequest`` if the request cannot be sent,
    ``AmbiguousOutcome`` unless ``repeatable``, ``NoNodeAnswered`` if ``hopeless``, ``TimedOut`` at
    the time limit."""
    elapsed_ms = core.now_ms - begun_ms
    op = messages.OPS[type(request)]
    if isinstance(outcome, Lost):
        if outcome.impossible:
            raise InvalidRequest(outcome.why)
        if outcome.sent and not repeatable:
            raise AmbiguousOutcome(f"{op}: {target} gave no answer ({outcome.why}); it may or "
                                   "may not have happened")
        if hopeless:
            raise NoNodeAnswered(core.network.errors())
        if elapsed_ms >= OPERATION_TIMEOUT_MS:
            raise TimedOut(f"{op}: {target}: {outcome.why}")
        return ""
    error = exception_for(outcome.code, outcome.error)
    may_repeat = error.retriable or (repeatable and not error.definite)
    if not may_repeat or elapsed_ms >= OPERATION_TIMEOUT_MS:
        raise error
    return error.detail.leader_address
