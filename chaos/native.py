"""The simulator and what it runs as machine code: the same seeds, the same digests, sooner.

Contract.  ``build`` compiles, in the tree that it is called from, consensus, storage and the
simulator into one library (mypyc), beside the sources that stay as they are: ``make native`` calls
it in a copy.  ``prove`` runs a short seed as machine code and in the interpreter, and says when
their digests differ.  Nothing that is shipped knows of either.

Theory.  Only calls that stay inside the library are cheap, so all that a seed runs much of is in
it.  What mypy says of unions and of None is left aside: the code that mypyc makes of it asks at run
time, as the interpreter does, and raises.  Not always: a test for None behind a call that changes
what is tested is left out, and whether an object is true is asked of its ``__bool__`` alone, never
of its ``__len__``: who has the one has to have the other.  So what fails here is run again in the
interpreter before it is believed.  Planted bugs patch sources, and are for the interpreter.
"""

from __future__ import annotations

import glob
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

#: What is compiled, and what of it is not, and why not.
COMPILED = ("multiraft/*.py", "multiraft/storage/*.py", "chaos/simulator/*.py")
LEFT = {
    "multiraft/__init__.py": "names only",
    "multiraft/storage/__init__.py": "names only",
    "chaos/simulator/__init__.py": "names only",
    "multiraft/core.py": "chooses a twin when it is imported",
    "multiraft/_values.py": "what the extension builds: tuples with names",
    "multiraft/_reference.py": "the slow twin",
    "multiraft/_reference_columns.py": "the slow twin",
    "multiraft/_reference_disk.py": "the slow twin",
    "multiraft/_reference_index.py": "the slow twin",
    "multiraft/describe.py": "for people",
    "multiraft/memory_store.py": "for tests",
    "multiraft/storage/inspection.py": "for people",
    "chaos/simulator/violations.py": "mypyc derives no class from AssertionError",
    "chaos/simulator/campaign.py": "starts seeds",
    "chaos/simulator/command.py": "starts seeds",
    "chaos/simulator/counters.py": "counts seeds",
    "chaos/simulator/counting.py": "counts seeds",
    "chaos/simulator/evidence.py": "watches one seed, for its page",
    "chaos/simulator/folder.py": "watches one seed, for its page",
    "chaos/simulator/shrink.py": "starts seeds",
}
#: What mypy says and mypyc can do without: see the module docstring.
UNASKED = ("union-attr", "arg-type", "dict-item", "assignment", "attr-defined", "override", "index",
           "type-var", "var-annotated", "call-overload", "misc", "operator", "call-arg",
           "name-defined", "return-value")
SETTINGS = f"""[mypy]
python_version = {sys.version_info[0]}.{sys.version_info[1]}
ignore_missing_imports = True
follow_imports = silent
check_untyped_defs = True
disable_error_code = {",".join(UNASKED)}
cache_dir = build/mypy
"""
#: A build of minutes; they come last, so they hold.
OPTIMISED = ["-O1", "-march=native", "-g0", "-w"]
#: The seed that proves a build: seconds of an interpreter, some restarts and moves.
PROOF = ["--seed", "94", "--nodes", "3", "--groups", "16", "--seconds", "60"]
_DIGEST = re.compile(r"^seed \d+ .* ([0-9a-f]{32})$", re.MULTILINE)


def modules() -> list[str]:
    """The files that are compiled, below the working directory."""
    return [path for pattern in COMPILED for path in sorted(glob.glob(pattern)) if path not in LEFT]


def build() -> None:
    """Compile them in place.  Raises ``SystemExit``."""
    # Of the extra ``native``, which whoever runs seeds need not have; mypyc asks for the first.
    setuptools, mypyc = map(importlib.import_module, ("setuptools", "mypyc.build"))
    settings = Path("build/native.ini")
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(SETTINGS)
    extensions = mypyc.mypycify(["--config-file", str(settings), *modules()], debug_level="0",
                                multi_file=True, strict_dunder_typing=True, group_name="native")
    flags = os.environ.get("MULTIRAFT_NATIVE_FLAGS", "").split() or OPTIMISED
    for extension in extensions:
        extension.extra_compile_args += flags
        extension.extra_link_args += flags
    setuptools.setup(name="native", ext_modules=extensions, packages=[], py_modules=[],
                     script_args=["--quiet", "build_ext", "--inplace"])


def digest(tree: str) -> str:
    """Of the proving seed, run by what is in ``tree``."""
    run = subprocess.run([sys.executable, "-m", "admin_cli", "chaos", "sim", *PROOF],
                         cwd=tree, env={**os.environ, "PYTHONPATH": tree}, check=False,
                         capture_output=True, text=True)
    found = _DIGEST.search(run.stdout)
    if run.returncode or found is None:
        sys.exit(f"the proving seed fails in {tree}:\n{run.stdout}{run.stderr}")
    return found[1]


def is_compiled(tree: str) -> bool:
    """Whether a seed that is run by what is in ``tree`` is run as machine code."""
    asked = "import chaos.simulator.world as world, multiraft.group as group; " \
            "print(world.__file__, group.__file__)"
    run = subprocess.run([sys.executable, "-c", asked], cwd=tree, check=True, text=True,
                         env={**os.environ, "PYTHONPATH": tree}, capture_output=True)
    return all(path.startswith(tree) and path.endswith(".so") for path in run.stdout.split())


def prove(compiled: str, interpreted: str) -> None:
    """Raises ``SystemExit`` when they are not the same world, or not what they are said to be."""
    if not is_compiled(compiled) or is_compiled(interpreted):
        sys.exit(f"{compiled} is not compiled, or {interpreted} is; run `make native`")
    native, plain = digest(compiled), digest(interpreted)
    if native != plain:
        sys.exit(f"the compiled simulator is another one: {' '.join(PROOF)} has the digest "
                 f"{native} in {compiled} and {plain} in {interpreted}; build it anew with "
                 f"`make native`, or use the interpreter")


if __name__ == "__main__":
    if sys.argv[1:2] == ["build"]:
        build()
    else:
        prove(*map(os.path.abspath, sys.argv[2:4]))
