"""The error table: every definite error has a code, and error texts cannot forge log lines."""

import io
import json

import pytest

from multiraft import errors
from multiraft.wire.errors import Code, ErrorDetail
from node.clients import error_codes
from node.clients.error_codes import REFUSALS, refusal
from node.observability.logging import logger


def subclasses(kind: type) -> list[type]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in subclasses(below))]


def made(kind: type) -> Exception:
    if kind is errors.NotLeader:
        return kind(3, 2)
    if kind is errors.QueueFull:
        return kind("bytes", 10, 11)
    if kind is errors.MemberLags:
        return kind(4, 11, 10)
    if kind is errors.BelowVoteBarrier:
        return kind(4, 1)
    if kind is errors.RecordsLeft:
        return kind(4, 1, 10)
    if kind is error_codes.OverTopicLimit:
        return kind(10, 11)
    if kind is error_codes.Redirect:
        return kind(Code.MOVED, ErrorDetail("it is in group 3"))
    return kind("why")


@pytest.mark.parametrize("kind", [one for kind in REFUSALS for one in subclasses(kind)
                                  if one.__module__ in ("multiraft.errors", error_codes.__name__)])
def test_every_definite_refusal_has_a_code_and_says_why(kind):
    code, detail = refusal(made(kind), lambda group: (Code.NOT_LEADER, ErrorDetail(f"{group}")))
    assert code not in (Code.OK, Code.AMBIGUOUS)
    assert detail.text


def test_a_bound_is_answered_with_limit_and_value():
    code, detail = refusal(errors.QueueFull("bytes", 10, 11), None)
    assert (code, detail.limit, detail.value) == (Code.QUEUE_FULL, 10, 11)
    code, detail = refusal(error_codes.OverTopicLimit(10, 11), None)
    assert (code, detail.limit, detail.value) == (Code.BATCH_TOO_LARGE, 10, 11)


def test_text_from_outside_cannot_forge_a_line_of_the_log():
    stream = io.StringIO()
    logger(7, stream).warning("closed", extra={"reason": 'x"}\n{"event": "forged'})
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "closed"
