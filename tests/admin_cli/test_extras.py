"""Commands whose packages are missing: a sentence, the line to run, and never a traceback."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from admin_cli import extras
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.packages import distribution_root

#: Packages that only extras install.
EXTRA_PACKAGES = ("confluent_kafka", "docker", "jinja2", "matplotlib", "numpy", "pandas",
                  "pyarrow", "pyspark", "testcontainers")
#: The command in an interpreter that has none of them.
PLAIN = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Nothing())
from admin_cli.main import main
main(sys.argv[1:])
"""
#: Nothing listens on the discard port.
NOWHERE = ("--servers", "127.0.0.1:9")


def plain(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", PLAIN.format(packages=EXTRA_PACKAGES),
                           *arguments], capture_output=True, text=True, timeout=60,
                          cwd=distribution_root(), check=False)


@pytest.mark.parametrize("arguments, extra, code", [
    (["chaos", "run", "--seconds", "1"], "chaos", 4),
    (["chaos", "report", "."], "chaos", 1),
    (["chaos", "sim", "--seed", "1", "--output", "{tmp}/run"], "chaos", 2),
    (["metrics", "export", "--output", "{tmp}/loads", *NOWHERE], "spark", 1),
    (["metrics", "pipeline", "--output", "{tmp}/loads", *NOWHERE], "spark", 1),
    (["rebalance", "plan", "--engine", "spark", *NOWHERE], "spark", 1),
    (["rebalance", "plan", "--picture", "{tmp}/plan.svg", *NOWHERE], "pictures", 1),
    (["rebalance", "show", "{tmp}/plan", "--picture", "{tmp}/plan.svg"], "pictures", 1),
    (["placement", "whatif", "--picture", "{tmp}/plan.svg", *NOWHERE], "pictures", 1)])
def test_a_command_without_its_extra_names_the_line_to_run(elsewhere, arguments, extra, code):
    done = plain(*(word.format(tmp=elsewhere) for word in arguments))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "is not installed." in done.stderr
    assert f"This needs: {extras.install_line(extra)}" in done.stderr
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("arguments", [
    ["chaos", "run"], ["chaos", "report"], ["chaos", "sim"], ["chaos", "faults"],
    ["chaos", "planted"], ["chaos", "check"], ["metrics", "export"], ["metrics", "pipeline"],
    ["rebalance", "plan"], ["placement", "whatif"]])
def test_help_needs_no_extra(arguments):
    done = plain(*arguments, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_containers_need_the_extra():
    script = ("from pathlib import Path\n"
              "from chaos.backends.backend import BackendError, ClusterSpec\n"
              "from chaos.backends.choice import open_backend\n"
              "try:\n    open_backend('docker', Path('.'), ClusterSpec(3, 1, 1))\n"
              "except BackendError as error:\n    print(error)\n")
    code = PLAIN.format(packages=EXTRA_PACKAGES).partition("from admin_cli")[0] + script
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=60, cwd=distribution_root(), check=False)
    assert f"This needs: {extras.install_line('chaos')}" in done.stdout, done.stderr


def test_a_source_tree_that_is_not_installed_is_named_by_its_path(monkeypatch):
    def none(_name: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", none)
    assert extras.install_line("chaos").endswith(f"install '{distribution_root()}[chaos]'")


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_pip_of_another_environment_is_not_named(monkeypatch, tmp_path, is_ours):
    (tmp_path / "pip").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if is_ours:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    line = extras.install_line("spark")
    assert line.startswith("pip install" if is_ours else f"{sys.executable} -m pip install")


def test_what_is_installed_is_no_failure():
    extras.require("chaos", "click")
    with pytest.raises(CommandFailed) as failed:
        extras.require("chaos", "click", "not_there_at_all", exit_code=ExitCode.USAGE)
    assert failed.value.exit_code == ExitCode.USAGE
    assert "not_there_at_all" in failed.value.message
