"""API pages from docstrings: ``python -m docs.api.build FOLDER`` (``make docs``).

Contract.  Writes a page per public module of ``MODULES``, an index, and ``replica.svg``, the state
diagram that the page of ``multiraft.raft`` shows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import pdoc

from docs.api import state_diagram
from docs.api.markdown import as_markdown, first_sentence
from multiraft.raft.status import Role

#: Packages whose public modules get a page, and modules that are no part of one of those.
MODULES = ("multiraft.client", "multiraft.client.blocking", "multiraft.raft", "multiraft.storage",
           "multiraft.wire", "placement")
#: The page of the package itself, whose docstring is the contract of a driver.
ROOT = "multiraft"
ROLES_ON = "multiraft.raft"
TEMPLATES = Path(__file__).parent / "templates"

#: pdoc evaluates annotations in the module or class of a function.  That fails for constructors
#: that a ``dataclass`` made elsewhere, and in a class with a method ``list``.  Such an annotation
#: is shown as it is written.
UNEVALUATED = "Error parsing type annotation"


def _documented(module: pdoc.doc.Module) -> Iterator[pdoc.doc.Doc]:
    """Yield a module and everything that is defined in it."""
    yield module
    for member in module.flattened_own_members:
        yield member


def modules() -> dict[str, pdoc.doc.Module]:
    """Return the modules that get a page, by name."""
    names = [ROOT, *pdoc.extract.walk_specs(MODULES)]
    found = {name: pdoc.doc.Module.from_name(name) for name in names}
    for module in found.values():
        for each in _documented(module):
            each.docstring = as_markdown(each.docstring)
    return found


def configure() -> None:
    """Give pdoc the templates and what they show."""
    pdoc.render.configure(docformat="markdown", show_source=False, template_directory=TEMPLATES)
    pdoc.render.env.globals.update(
        roles_on=ROLES_ON, picture=state_diagram.svg(), rows=state_diagram.table(),
        roles=[role.name for role in Role], links="raft/")


def build(folder: Path) -> int:
    """Write all pages below ``folder``; return their number."""
    configure()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module="pdoc")
        warnings.filterwarnings("ignore", UNEVALUATED)
        found = modules()
        for name, module in found.items():
            page = folder / f"{name.replace('.', '/')}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pdoc.render.html_module(module, found))
        pdoc.render.env.globals["sentences"] = {name: first_sentence(module.docstring)
                                                for name, module in found.items()}
        (folder / "index.html").write_text(pdoc.render.html_index(found))
        (folder / "search.js").write_text(pdoc.render.search_index(found))
    (folder / "replica.svg").write_text(state_diagram.svg())
    return len(found)


def main() -> None:
    """Build the pages in the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m docs.api.build")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print(f"{build(folder)} pages; open {folder / 'index.html'}")


if __name__ == "__main__":
    main()
