"""Small rules that keep the code base readable, each with advice.

Contract.  A rule checks all files of the project that it applies to, and reports all findings at
once as ``file:line finding; advice``.  Its exceptions are in a table here, with a reason.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy import tree

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 1000

#: Modules that are longer than they should be, with their length.  This table may only shrink: a
#: module that was shortened must be lowered or leave.
LONG_MODULES: dict[str, int] = {}

#: Functions that may catch everything, as ``file::function``: the outermost edge of a task, where
#: the alternative is a lost traceback.  Each has its reason beside it.
CATCH_ALL: dict[str, str] = {
    "chaos/run/crashes.py::survive": "a client that crashes is what a run looks for",
    "node/peers/liveness_thread.py::_main":
        "a thread's edge: the loop raises it with its traceback",
}

#: Folders whose programs talk to a person; everything else returns values or raises.
TALKATIVE = ("admin_cli", "benchmarks", "demo", "docs", "examples", "tests")
#: A node that cannot start has no log yet: it says why on standard error.
TALKATIVE_FILES = ("node/main.py",)

#: The pure packages: same input, same output, in every process.
PURE = ("placement/", "multiraft/", "chaos/simulator/")
IMPURE = ("multiraft/client/", "multiraft/storage/")

#: Hosts that a reader anywhere can open.  A registry, a mirror or an internal host is not one.
HOSTS = ("127.0.0.1", "localhost", "example.org", "github.com", "raft.github.io", "arxiv.org",
         "kafka.apache.org", "keepachangelog.com", "semver.org", "www.rfc-editor.org",
         "docs.nats.io", "www.apache.org", "www.lightbend.com", "www.w3.org")

LOOP_OVER_SET = "sets have no order; sort it, so that every run does the same"


def is_pure(name: str) -> bool:
    """Return True if the file belongs to a pure package."""
    return name.startswith(PURE) and not name.startswith(IMPURE)


def functions(name: str):
    """Yield each function of a file."""
    return (node for node in ast.walk(tree.parsed(name))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_lines_fit_into_100_columns():
    names = [name for name in tree.with_suffix(".py", ".pyx", ".pxd", ".pxi", ".pyi", ".toml",
                                          "Makefile")
             if name not in tree.FOREIGN]
    tree.complain("long lines:", [
        f"{name}:{number} has {len(line)} columns; {COLUMNS_MAX} fit" for name in names
        for number, line in enumerate(tree.text(name).splitlines(), 1) if len(line) > COLUMNS_MAX])


def test_functions_fit_on_a_screen():
    complaints = []
    for name in tree.python_files():
        for function in functions(name):
            body = function.body
            first = body[0]
            documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) \
                and isinstance(first.value.value, str)
            prose = first.end_lineno - first.lineno + 1 if documented else 0
            lines = function.end_lineno - function.lineno + 1 - prose
            if lines > FUNCTION_LINES_MAX:
                complaints.append(f"{name}:{function.lineno} {function.name} has {lines} lines "
                                  f"without its docstring; cut it at {FUNCTION_LINES_MAX}, where "
                                  f"a part has a name of its own")
    tree.complain("long functions:", complaints)


def test_modules_are_short_and_the_list_of_long_ones_shrinks():
    complaints = []
    for name in tree.python_files():
        lines = len(tree.text(name).splitlines())
        allowed = LONG_MODULES.get(name, MODULE_LINES_MAX)
        if lines > allowed:
            complaints.append(f"{name}:1 has {lines} lines; {allowed} are allowed: move one "
                              f"responsibility into a module of its own")
        elif name in LONG_MODULES and lines <= MODULE_LINES_MAX:
            complaints.append(f"{name}:1 is short now; take it out of LONG_MODULES")
        elif name in LONG_MODULES and lines < allowed - 20:
            complaints.append(f"{name}:1 shrank to {lines} lines; lower its number in LONG_MODULES")
    complaints += [f"{name}:1 is in LONG_MODULES and does not exist; take it out"
                   for name in LONG_MODULES if name not in tree.files()]
    tree.complain("long modules:", complaints)


def test_the_parts_of_the_extension_are_short():
    tree.complain("long parts:", [
        f"{name}:1 has {lines} lines; {MODULE_LINES_MAX} are allowed: move one responsibility into "
        f"a part of its own (multiraft/core_parts)" for name in tree.with_suffix(".pyx", ".pxi")
        if (lines := len(tree.text(name).splitlines())) > MODULE_LINES_MAX])


def test_every_module_says_what_it_is():
    complaints = []
    for name in tree.python_files():
        prose = ast.get_docstring(tree.parsed(name))
        if not prose:
            complaints.append(f"{name}:1 has no docstring; say what it is, its contract, its "
                              f"invariants")
        elif "Placeholder" in prose:
            complaints.append(f"{name}:1 has a placeholder as docstring; write it")
    tree.complain("modules without a word:", complaints)


def is_row(node: ast.AST) -> bool:
    """Return True for a named tuple, which may do without a docstring if its fields explain it."""
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple"
                                                  for base in node.bases)


def test_every_public_class_and_function_of_the_library_has_a_docstring():
    complaints = []
    for name in tree.python_files(*tree.PACKAGES):
        if name.split("/")[-1].startswith("_"):
            continue  # a private module speaks through the public one, or through its .pyi
        for node in tree.parsed(name).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) \
                    and not node.name.startswith("_") and not is_row(node) \
                    and not ast.get_docstring(node):
                complaints.append(f"{name}:{node.lineno} {node.name} has no docstring")
    tree.complain("public names without a word:", complaints)


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Return True for ``except:``, ``except Exception`` or ``except BaseException``, alone or in a
    tuple, unless the handler ends in a bare ``raise``."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")
               for kind in kinds)


def test_nothing_catches_everything():
    complaints = []
    for name in tree.python_files():
        for function in functions(name):
            if f"{name}::{function.name}" in CATCH_ALL:
                continue
            complaints += [f"{name}:{node.lineno} catches everything; name the errors that are "
                           f"expected here, or let it end the task" for node in ast.walk(function)
                           if isinstance(node, ast.ExceptHandler) and catches_all(node)]
    tree.complain("broad handlers:", sorted(set(complaints)))


def test_libraries_do_not_print():
    complaints = [f"{name}:{node.lineno} prints; return the value, raise, or emit an event"
                  for name in tree.python_files() if name.split("/")[0] not in TALKATIVE
                  and name not in TALKATIVE_FILES for node in ast.walk(tree.parsed(name))
                  if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                  and node.func.id in ("print", "breakpoint")]
    tree.complain("prints:", complaints)


def test_nothing_is_left_to_do():
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    names = [name for name in tree.with_suffix(".py", ".pyx", ".pxd", ".pxi", ".pyi", ".md",
                                          "Makefile")
             if name not in tree.FOREIGN]
    tree.complain("left to do:", [
        f"{name}:{number} {found[0]}; do it now, or describe the limit in a sentence"
        for name in names for number, line in enumerate(tree.text(name).splitlines(), 1)
        if (found := marks.search(line)) and not name.endswith("tests/tidy/test_tidy.py")])


def test_defaults_are_immutable():
    makers = ("list", "dict", "set", "bytearray", "defaultdict", "deque")
    complaints = []
    for name in tree.python_files():
        for function in functions(name):
            defaults = [*function.args.defaults, *function.args.kw_defaults]
            complaints += [f"{name}:{each.lineno} a mutable default of {function.name}; "
                           f"use None or a tuple" for each in defaults
                           if isinstance(each, (ast.List, ast.Dict, ast.Set)) or
                           isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
                           and each.func.id in makers]
    tree.complain("mutable defaults:", complaints)


def test_pure_packages_use_no_salted_hash():
    complaints = [f"{name}:{node.lineno} uses the builtin hash; it differs between processes: use "
                  f"a written-down hash (multiraft.core, placement)"
                  for name in tree.python_files("multiraft", "placement", "chaos") if is_pure(name)
                  for node in ast.walk(tree.parsed(name))
                  if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                  and node.func.id == "hash"]
    tree.complain("salted hashes:", complaints)


def is_set(node: ast.AST) -> bool:
    """Return True if the expression is visibly a set."""
    return isinstance(node, (ast.Set, ast.SetComp)) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset"))


def test_pure_packages_do_not_iterate_over_sets():
    complaints = []
    for name in tree.python_files("multiraft", "placement", "chaos"):
        if not is_pure(name):
            continue
        for node in ast.walk(tree.parsed(name)):
            over = node.iter if isinstance(node, (ast.For, ast.comprehension)) else None
            if over is not None and is_set(over):
                complaints.append(f"{name}:{over.lineno} iterates over a set; {LOOP_OVER_SET}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
                    and node.func.id in ("list", "tuple") and node.args and is_set(node.args[0]):
                complaints.append(f"{name}:{node.lineno} orders a set by chance; {LOOP_OVER_SET}")
    tree.complain("iteration over sets:", complaints)


def test_nothing_sleeps_in_tests():
    complaints = [f"{name}:{node.lineno} sleeps; wait for the condition, with a bound"
                  for name in tree.python_files("tests") for node in ast.walk(tree.parsed(name))
                  if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"
                  and not (node.args and ast.unparse(node.args[0]).endswith("POLL_S"))]
    tree.complain("sleeping tests (a poll inside a bounded wait names its pause ...POLL_S):",
                  complaints)


def test_each_document_has_one_title():
    complaints = []
    for name in tree.with_suffix(".md"):
        prose = re.sub(r"^```.*?^```", "", tree.text(name), flags=re.DOTALL | re.MULTILINE)
        titles = re.findall(r"^# .+$", prose, flags=re.MULTILINE)
        if len(titles) != 1:
            complaints.append(f"{name}:1 has {len(titles)} first-level titles; one")
    tree.complain("titles:", complaints)


def test_no_build_product_is_tracked():
    built = re.compile(r"\.(c|so|o|pyd|pyc|whl|egg)$|_source_digest\.h$|(^|/)__pycache__/")
    tree.complain("build products in git:", [f"{name}:1 is built; git rm --cached it"
                                             for name in tree.tracked() if built.search(name)])


def test_no_large_file_is_tracked():
    limit = 512 << 10
    tree.complain("large files in git:", [
        f"{name}:1 has {size} bytes, more than {limit}; generate or download it"
        for name in tree.files() if (size := (tree.ROOT / name).stat().st_size) > limit])


def readable(name: str) -> bool:
    """Return True if the file is text."""
    return b"\0" not in (tree.ROOT / name).read_bytes()[:8192]


def test_no_path_of_one_machine_is_tracked():
    folders = "|".join(("wo" "rk", "ro" "ot", "ho" "me"))
    path = re.compile(rf"(?<![\w.\-}}$~])/(?:{folders})/")
    tree.complain("paths of one machine:", [
        f"{name}:{number} names {found[0]}...; use a relative path, an argument or a temporary "
        f"directory" for name in tree.files() if readable(name)
        for number, line in enumerate(tree.text(name).splitlines(), 1)
        if (found := path.search(line))])


def test_urls_lead_to_places_that_everybody_can_reach():
    url = re.compile(r"\b(?:https?|git|ssh)://(?:[\w.-]+@)?([\w.-]+)")
    tree.complain("hosts:", [
        f"{name}:{number} names the host {found[1]}; no registry, no mirror, no machine of ours "
        f"(a public one goes into HOSTS)" for name in tree.files() if readable(name)
        for number, line in enumerate(tree.text(name).splitlines(), 1)
        for found in url.finditer(line) if found[1] not in HOSTS])


def test_registries_are_not_named():
    hosts = re.compile(r"\b(?:py" r"pi\.org|python" r"hosted\.org|gh" r"cr\.io|quay" r"\.io|"
                       r"docker" r"\.io|npm" r"js\.org|proxy\.go" r"lang\.org)\b")
    tree.complain("registries:", [
        f"{name}:{number} names {found[0]}; the installer's own configuration says where from"
        for name in tree.files() if readable(name)
        for number, line in enumerate(tree.text(name).splitlines(), 1)
        if (found := hosts.search(line))])


@pytest.mark.parametrize("name", [".ci/run"])
def test_ci_runs_what_a_contributor_runs(name):
    lines = [line for line in tree.text(name).splitlines() if not line.startswith("#")]
    assert lines == ["exec make test"], f"{name} calls `make test` and nothing more"
    assert (tree.ROOT / name).stat().st_mode & 0o111, f"{name} must be executable"
