"""No file breaks a rule of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import pytest

from tests.tidy import imports, prose, references, rules, structure, style, tree


@pytest.mark.parametrize("name", rules.RULES)
def test_no_file_breaks_the_rule(name):
    tree.complain(f"{name}:", [str(finding) for finding in rules.RULES[name]()])


@pytest.fixture
def project(monkeypatch):
    """A project of the files that a test gives."""
    def make(**files: str) -> None:
        texts = {name.replace("__", "/").replace("_md", ".md") + ("" if name.endswith("_md")
                                                                  else ".py"): text
                 for name, text in files.items()}
        monkeypatch.setattr(tree, "files", lambda: tuple(sorted(texts)))
        monkeypatch.setattr(tree, "text", texts.__getitem__)

    caches = (tree.parsed, references._by_name, references._all_files, references._decisions,
              references._rows, references._headings, prose.docstrings, prose.comments,
              prose.strings, prose.page, imports.imports, imports.our_modules)
    for cache in caches:
        cache.cache_clear()
    yield make
    for cache in caches:
        cache.cache_clear()


def test_first_words_are_found_in_docstrings_of_every_kind(project):
    project(node__a='"""Whom it serves."""\nclass A:\n    """What is left."""\n'
                    '    def f(self):\n        """Return whether it is."""\n',
            tests__b='"""\nHow it is done."""')
    assert [(each.path, each.line) for each in style.first_words()] == [
        ("node/a.py", 1), ("node/a.py", 3)]
    assert [each.path for each in style.first_words_of_tests()] == ["tests/b.py"]


def test_a_docstring_that_only_points_elsewhere_is_found(project):
    project(node__a='"""A module."""\nclass A:\n    """See the module\'s docstring."""\n'
                    'class B:\n    """A thing.  See the module\'s docstring."""\n')
    assert [each.line for each in style.empty_docstrings()] == [3]


def test_phrases_are_found_across_lines_and_not_in_code(project):
    project(node__a='"""A node that\ngoes\non.  ``nobody``."""\n# Nobody\n# is told.\n'
                    'x = "nobody"\n',
            admin_cli__b='"""A command."""\nx = "as nobody knows"\n',
            docs__c_md="Plain.\n\n    nobody\n\nIt goes on, `whoever` it is.\n```\nnobody\n```\n")
    assert [(each.path, each.line, each.text.split(";")[0]) for each in style.phrases()] == [
        ("admin_cli/b.py", 2, "'nobody'"), ("docs/c.md", 5, "'goes on'"),
        ("node/a.py", 2, "'goes on'"), ("node/a.py", 4, "'Nobody'"), ("node/a.py", 5, "'is told'")]


def test_references_that_lead_nowhere_are_found(project):
    project(docs__testing_md="| S1 | a |\n", docs__checkers_md="| A1 | a |\n",
            docs__decisions__0001_md="# One\n",
            node__a='"""See docs/testing.md, a.py, decision 0001 and scenario S1."""\n'
                    '# See docs/b.md, c.py, decisions 0001 and 0002, S2.\n# DESIGN 5\n',
            chaos__b='"""A1, A2."""', node__c='"""docs/testing.md, "No such part"."""')
    assert [(each.path, each.line, each.text.split(",")[0].split(";")[0])
            for each in references.dangling()] == [
        ("chaos/b.py", 1, "names the anomaly A2"),
        ("node/a.py", 2, "names the decision 0002"),
        ("node/a.py", 2, "names the file 'docs/b.md'"),
        ("node/a.py", 2, "names the scenario S2"),
        ("node/a.py", 3, "names 'DESIGN'"),
        ("node/c.py", 1, "names the part 'No such part' of docs/testing.md")]


def test_circles_are_found_with_imports_of_type_checkers(project):
    project(node__a="from node import b\nimport node.d",
            node__b="if TYPE_CHECKING:\n    from node.c import C\n",
            node__c="def f():\n    import node.a\n", node__d="import node.c\nimport trio")
    assert [(each.path, each.line) for each in structure.import_cycles()] == [
        ("node/a.py", 1), ("node/a.py", 2), ("node/b.py", 2), ("node/c.py", 2), ("node/d.py", 1)]
    assert "through 2 other modules" in structure.import_cycles()[0].text


@pytest.mark.parametrize(("edges", "found"), [
    ({"a": ["b"], "b": []}, []),
    ({"a": ["b"], "b": ["a"]}, [{"a", "b"}]),
    ({"a": ["b", "c"], "b": ["a"], "c": ["d"], "d": ["c"]}, [{"c", "d"}, {"a", "b"}])])
def test_circles_are_strongly_connected_components(edges, found):
    assert structure.circles({module: dict.fromkeys(targets, [1])
                              for module, targets in edges.items()}) == found


def test_methods_that_only_raise_are_found(project):
    project(node__a='class A:\n    def f(self):\n        """Return it."""\n'
                    '        raise NotImplementedError\n'
                    '    def g(self):\n        raise NotImplementedError("g")\n'
                    '    def h(self):\n        if self:\n            raise NotImplementedError\n')
    assert [each.line for each in structure.abstract_methods()] == [2, 5]


def test_text_keeps_its_lines_when_code_is_blanked():
    assert prose.words("a ``b\nc`` d `e`") == "a    \n    d    "
