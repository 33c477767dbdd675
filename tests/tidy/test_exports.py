"""``__all__`` is the truth, and every module stands on its own.

Contract.  Where a module has ``__all__``, each name in it exists, none is listed twice, and no
public class or function of the module is missing from it.  Every public module imports alone in an
interpreter that has imported nothing of ours: an import that only works after another one is a
cycle waiting for the user.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys

import pytest

from tests.tidy import tree

#: Some seconds on an idle machine; only an import that hangs waits so long.
IMPORTS_S = 1800.0
#: Installed only with an extra; a module that needs one of these is skipped without it.
OPTIONAL = ("pyspark", "pyarrow")

#: Forks one child per module, so that third-party packages are imported once and ours anew.
ALONE = """
import gc, importlib, os, sys, traceback
for third_party in ("trio", "cbor2", "sortedcontainers", "click", "rich.progress", "docker",
                    "testcontainers.core.container", "matplotlib.figure", "jinja2"):
    importlib.import_module(third_party)
gc.freeze()
gc.disable()  # else every child touches, and copies, all that was imported
for name in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            if getattr(error, "name", None) not in sys.argv[1].split(","):
                last = traceback.extract_tb(error.__traceback__)[-1]
                print(f"{name}: {last.filename}:{last.lineno} {error!r}", flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(f"{name}: the interpreter ended", flush=True)
"""


def public_modules() -> list[str]:
    """Modules of the distribution whose names do not start with an underscore."""
    names = [tree.module_name(name) for name in tree.python_files(*tree.PACKAGES)]
    return [name for name in names
            if not any(part.startswith("_") for part in name.split("."))]


def modules_with_all() -> list[str]:
    """Modules that state what they export."""
    return [name for name in tree.python_files(*tree.PACKAGES)
            if any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
                   for node in tree.parsed(name).body)]


@pytest.mark.parametrize("name", modules_with_all())
def test_all_is_what_the_module_offers(name):
    module = importlib.import_module(tree.module_name(name))
    stated = list(module.__all__)
    assert len(stated) == len(set(stated)), f"{name}: a name stands twice in __all__"
    missing = [each for each in stated if not hasattr(module, each)]
    assert not missing, f"{name}: __all__ names {missing}, which the module does not have"
    defined = [node.name for node in tree.parsed(name).body
               if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
               and not node.name.startswith("_")]
    hidden = [each for each in defined if each not in stated]
    assert not hidden, f"{name}: {hidden} are public and not in __all__; add or underscore them"


def test_every_public_module_imports_alone():
    done = subprocess.run([sys.executable, "-c", ALONE, ",".join(OPTIONAL), *public_modules()],
                          cwd=tree.ROOT, capture_output=True, text=True, timeout=IMPORTS_S,
                          env={**os.environ, "PYTHONPATH": str(tree.ROOT)})
    assert done.returncode == 0, done.stderr
    tree.complain("modules that cannot be imported alone:", done.stdout.splitlines())


@pytest.mark.parametrize("module", ["multiraft.client.blocking", "admin_cli.main",
                                    "multiraft.wire", "multiraft.storage", "placement"])
def test_programs_without_trio_need_none(module):
    if module not in public_modules():
        pytest.skip(f"{module} is not part of this distribution")
    probe = f"import {module}, sys; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], cwd=tree.ROOT, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False", f"importing {module} pulls in trio"
