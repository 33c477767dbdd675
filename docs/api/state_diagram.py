"""State diagram of a replica: its roles, the messages that each role handles, the transitions.

Contract.  Roles and messages come from ``multiraft.raft.multi_raft.HANDLERS``.  ``TRANSITIONS`` is
written by hand; ``tests/docs`` compares it with the transitions that the golden scripts run through
and with the table of handlers.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from multiraft.raft.messages import (
    Append,
    AppendReply,
    DigestAnswer,
    HeadRecoveryRequest,
    Removed,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from multiraft.raft.multi_raft import HANDLERS
from multiraft.raft.status import Role


class Transition(NamedTuple):
    """A change of role, its causes, and the words for them in the picture."""

    before: Role
    after: Role
    #: Types of messages, and names of methods of ``MultiRaft`` and its view ``repair``.
    causes: tuple[type | str, ...]
    label: tuple[str, ...]


F, P, C, L = Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER

#: Calls that make a replica of any role a follower: a replica whose node lost support or which was
#: re-examined (``ready``), removal, damage, forced recovery.
ENDS = ("ready", "remove_group", "quarantine", "reincarnate")
#: Messages that do so at a replica that asks for votes.
HEARD = (VoteRequest, VoteReply, Append, SnapshotOffer, Removed, DigestAnswer)

TRANSITIONS = (
    Transition(F, P, ("tick",), ("election timer,", "with support of", "a majority")),
    Transition(P, C, (VoteReply, "tick"), ("pre-votes of", "a majority")),
    Transition(C, L, (VoteReply, "written"), ("votes of a", "majority, its", "own durable")),
    Transition(C, P, ("tick",), ("election timer:", "no majority yet")),
    Transition(F, C, (TimeoutNow,), ("TimeoutNow: the leader transfers its leadership",)),
    Transition(P, F, (*HEARD, "tick", *ENDS),
               ("pre-votes refused, leader known,", "higher term, support lost,",
                "quarantined, removed")),
    Transition(C, F, (*HEARD, "tick", "written", *ENDS),
               ("election lost, leader known, higher term, support lost, quarantined, removed",)),
    Transition(L, F, (VoteRequest, VoteReply, Append, AppendReply, SnapshotOffer, DigestAnswer,
                      HeadRecoveryRequest, "resign", *ENDS),
               ("higher term, support lost, resigned, quarantined, removed",)),
)

WIDTH, HEIGHT = 1180, 430
BOX_WIDTH, BOX_TOP, ROW = 180, 100, 17
TITLE_HEIGHT = 30
#: Left edge of each role's box.
LEFT = {F: 20, P: 340, C: 660, L: 980}

STYLE = """
.box { fill: #f6f8fa; stroke: #57606a; } .leader { fill: #dafbe1; stroke: #1a7f37; }
text { font: 12px 'DejaVu Sans', Verdana, sans-serif; fill: #24292f; }
.role { font-weight: bold; } .label { fill: #0550ae; text-anchor: middle; }
path { fill: none; stroke: #0550ae; stroke-width: 1.4; marker-end: url(#head); }
"""


def messages(role: Role) -> list[str]:
    """Names of the messages that ``role`` handles, in the order of the table."""
    return [kind.__name__ for kind, handled_in in HANDLERS if handled_in is role]


def box_height() -> int:
    """Return the height of all boxes: the longest list of messages fits."""
    return TITLE_HEIGHT + ROW * max(len(messages(role)) for role in Role) + 10


def _text(x: int, y: int, words: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def _labels(x: int, y: int, lines: tuple[str, ...]) -> list[str]:
    """Return lines of text, centred at ``x``, of which the last one stands at ``y``."""
    first = y - 14 * (len(lines) - 1)
    return [_text(x, first + 14 * number, line, "label") for number, line in enumerate(lines)]


def _box(role: Role) -> list[str]:
    left = LEFT[role]
    kind = "box leader" if role is L else "box"
    found = [f'<rect x="{left}" y="{BOX_TOP}" width="{BOX_WIDTH}" height="{box_height()}" '
             f'rx="6" class="{kind}"/>',
             _text(left + 12, BOX_TOP + 20, role.name, "role")]
    return found + [_text(left + 12, BOX_TOP + TITLE_HEIGHT + 14 + ROW * number, name)
                    for number, name in enumerate(messages(role))]


def _across(transition: Transition) -> list[str]:
    """Draw a transition between adjacent boxes."""
    before, after = LEFT[transition.before], LEFT[transition.after]
    forward = before < after
    y = BOX_TOP + (70 if forward else 110)
    begin, end = (before + BOX_WIDTH, after - 2) if forward else (before, after + BOX_WIDTH + 2)
    lines = transition.label
    at = y - 6 if forward else y + 16 + 14 * (len(lines) - 1)
    return [f'<path d="M{begin} {y} L{end} {y}"/>', *_labels((begin + end) // 2, at, lines)]


def _above(transition: Transition) -> list[str]:
    """Draw a transition that passes over boxes."""
    begin, end = (LEFT[role] + BOX_WIDTH // 2 for role in (transition.before, transition.after))
    y = BOX_TOP - 50
    return [f'<path d="M{begin} {BOX_TOP} V{y} H{end} V{BOX_TOP - 2}"/>',
            *_labels((begin + end) // 2, y - 6, transition.label)]


def _below(transition: Transition) -> list[str]:
    """Draw a transition back to the first box, each at a height of its own."""
    number = transition.before - F
    begin, end = LEFT[transition.before] + BOX_WIDTH // 2, LEFT[F] + BOX_WIDTH - 45 * number
    bottom = BOX_TOP + box_height()
    y = bottom + 52 * number
    return [f'<path d="M{begin} {bottom} V{y} H{end} V{bottom + 2}"/>',
            *_labels((LEFT[F] + BOX_WIDTH + begin) // 2, y - 6, transition.label)]


def drawn(transition: Transition) -> list[str]:
    """Return the elements of one transition."""
    if abs(transition.after - transition.before) == 1 and transition.after is not F:
        return _across(transition)
    return _below(transition) if transition.after is F else _above(transition)


def svg() -> str:
    """Return the picture as an SVG document."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             "<title>Roles of a replica, the messages that each handles, and transitions</title>",
             f"<style>{STYLE}</style>",
             '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
             'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" '
             'style="fill:#0550ae;stroke:none;marker-end:none"/></marker></defs>']
    for role in Role:
        parts += _box(role)
    for transition in TRANSITIONS:
        parts += drawn(transition)
    return "\n".join([*parts, "</svg>\n"])


def table() -> list[tuple[str, list[str]]]:
    """Return a row per message: its name, and its handler in each role; empty: it is ignored."""
    kinds = dict.fromkeys(kind for kind, _ in HANDLERS)
    return [(kind.__name__, [_name(HANDLERS.get((kind, role))) for role in Role])
            for kind in kinds]


def _name(handler) -> str:
    return f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}" if handler else ""
