"""The page of the settings of topics, made from the registry."""

import os

from multiraft.settings.registry import SETTINGS, Effect, Setting
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "topic-settings.md"
MARK = "<!-- tables: made from the source by tests/docs/test_settings_page.py -->\n"
HEADINGS = {
    Effect.IN_EFFECT: "In effect",
    Effect.STORED: "Stored, not carried out by this release",
    Effect.FIXED: "Fixed",
    Effect.NO_EFFECT: "No effect",
}


def row(setting: Setting) -> str:
    """Return the row of a setting, or of a fixed one with its only value."""
    text = setting.text[0].upper() + setting.text[1:].rstrip(".") + "."
    default = setting.default or "empty"
    if setting.effect is Effect.FIXED:
        return f"| `{setting.name}` | {default} | {text} |\n"
    return f"| `{setting.name}` | {setting.type.range_text} | {default} | {text} |\n"


def section(effect: Effect) -> str:
    """Return the table of the settings with this effect; "" = there is none."""
    rows = [row(setting) for setting in SETTINGS.values() if setting.effect is effect]
    if not rows:
        return ""
    head = ("| setting | value | reason |\n|---|---|---|\n" if effect is Effect.FIXED else
            "| setting | values | default | meaning |\n|---|---|---|---|\n")
    return f"\n## {HEADINGS[effect]}\n\n{head}{''.join(rows)}"


def page() -> str:
    """Return docs/topic-settings.md as generated from the registry."""
    before = PAGE.read_text().split(MARK)[0]
    return before + MARK + "".join(map(section, HEADINGS))


def test_the_page_says_what_the_registry_says():
    expected = page()
    if os.environ.get("MULTIRAFT_REWRITE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "MULTIRAFT_REWRITE=1 writes docs/topic-settings.md anew"


def test_each_effect_has_a_heading():
    assert {*HEADINGS} == {*Effect}
