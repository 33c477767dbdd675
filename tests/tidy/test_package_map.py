"""Every module is in the map of docs/architecture.md, and every folder has a sentence there."""

from __future__ import annotations

from tests.tidy import package_map, tree

WRITE = "run python -m tests.tidy.package_map"


def test_every_module_is_in_the_map():
    text = tree.text(package_map.PAGE)
    wanted = package_map.lines(text)
    here = [line for line in package_map.section(text).splitlines() if line.startswith("- ")]
    tree.complain(f"{package_map.PAGE}, {package_map.HEADING}; {WRITE}:", [
        *(f"missing: {line}" for line in wanted if line not in here),
        *(f"outdated: {line}" for line in here if line not in wanted)])
    assert here == wanted, f"the order of folders; {WRITE}"


def test_every_folder_has_a_sentence():
    found = package_map.sentences(tree.text(package_map.PAGE))
    tree.complain(f"{package_map.PAGE}, folders without a sentence:", [
        folder for folder in package_map.modules() if not found.get(folder, "").endswith(".")])


PAGE = f"""# A

{package_map.HEADING}

Intro.

- `node/`: By hand. Modules: `gone`.

## Next

- `b/`: no map.
"""


def test_the_map_keeps_sentences_and_replaces_modules(monkeypatch):
    monkeypatch.setattr(package_map, "modules", lambda: {"node": ["a", "b"], "placement": []})
    written = package_map.rewritten(PAGE)
    assert written == PAGE.replace("`gone`.", f"`a`, `b`.\n- `placement/`: "
                                   f"{package_map.first_sentence('placement')}")
    assert package_map.rewritten(written) == written
    assert package_map.first_sentence("placement").endswith(".")
