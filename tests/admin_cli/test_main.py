"""The root command: words from elsewhere, servers, plug-ins, intruders, completion."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import subprocess
import sys
import threading

import click
import pytest
from click.testing import CliRunner

from admin_cli import connection
from admin_cli import main as main_module
from admin_cli.console import options
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.main import COMMANDS, cli, main
from admin_cli.packages import PACKAGES, check_packages, distribution_root
from admin_cli.servers import (
    SERVERS_MAX,
    TlsOptions,
    find_servers,
    find_tls,
    parse_addresses,
)
from admin_cli.session import Session
from tests.admin_cli.command import started


@pytest.mark.parametrize("typed, meant", [
    (["topics"], "multiraft topic list"), (["topic", "ls"], "multiraft topic list"),
    (["topic", "rm", "x"], "multiraft topic delete"), (["pub"], "multiraft produce"),
    (["conusme"], "multiraft consume"), (["brokers"], "multiraft node list"),
    (["group", "lst"], "multiraft group list"), (["dev", "upp"], "multiraft dev up"),
])
def test_what_was_probably_meant_is_named(run, typed, meant):
    result = run(*typed)
    assert result.exit_code == ExitCode.USAGE
    assert f"Did you mean `{meant}`?" in result.stderr


def test_an_unknown_word_points_to_the_help(run):
    result = run("topic", "zzzzzz")
    assert result.exit_code == ExitCode.USAGE
    assert "multiraft topic --help" in result.stderr


@pytest.mark.parametrize("flag", ["--bootstrap-server", "--brokers", "--server", "--endpoints"])
def test_servers_by_the_names_of_other_systems(run, cluster, flag):
    assert run("topic", "list", flag, "10.0.0.9:9101", servers=None).exit_code == 0
    assert cluster.asked == [("10.0.0.9:9101",)]


def test_servers_may_stand_before_the_command(run, cluster):
    run("--servers", "a:1", "topic", "list", servers=None)
    run("--servers", "a:1", "topic", "list", "--servers", "b:2", servers=None)
    assert cluster.asked == [("a:1",), ("b:2",)]


def test_servers_come_from_the_flag_before_the_environment(environ):
    environ["MULTIRAFT_SERVERS"] = "b:2"
    assert find_servers("a:1", environ).addresses == ("a:1",)
    assert find_servers(None, environ).addresses == ("b:2",)


def test_without_any_server_it_says_how_to_get_one(run):
    result = run("topic", "list", servers=None)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "multiraft dev up" in result.stderr


@pytest.mark.parametrize("text", ["", ",", "host", "host:", ":9101", "host:0", "host:65536",
                                  "host:port", "a:1,b", "host:٣"])
def test_a_bad_address_is_a_usage_error(text):
    with pytest.raises(CommandFailed) as failed:
        parse_addresses(text, "--servers")
    assert failed.value.exit_code == ExitCode.USAGE


def test_addresses_are_limited_and_ipv6_is_fine():
    assert parse_addresses("[::1]:9101, b:2", "--servers") == ("[::1]:9101", "b:2")
    with pytest.raises(CommandFailed, match=f"the limit is {SERVERS_MAX}"):
        parse_addresses(",".join(["a:1"] * (SERVERS_MAX + 1)), "--servers")


@pytest.mark.parametrize("command", [name for name in COMMANDS])
def test_every_command_has_help(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_version_as_json(run):
    assert set(json.loads(run("version", "--json").stdout)) == {"multiraft", "python", "platform",
                                                                "location"}


def test_a_reader_that_goes_away_ends_consume_quietly():
    with started("consume", "t", records=100_000, stdout=subprocess.PIPE) as consumer:
        assert consumer.stdout.readline() == b"%099d\n" % 0
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait(20) == 0


# -- plug-ins -------------------------------------------------------------------------------------

@click.command()
def plugin():
    """Does a thing."""
    click.echo("plugged")


def plug(monkeypatch, **points: str) -> None:
    made = [importlib.metadata.EntryPoint(name, value, main_module.ENTRY_POINT_GROUP)
            for name, value in points.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: made)


def test_a_plugin_is_a_command_like_ours(run, monkeypatch):
    plug(monkeypatch, thing=f"{__name__}:plugin")
    assert run("thing").stdout == "plugged\n"
    assert "Does a thing." in run("--help").stdout


@pytest.mark.parametrize("value", ["no.such.module:x", f"{__name__}:missing", "json:dumps"])
def test_a_broken_plugin_is_reported_and_harms_no_other(run, monkeypatch, value):
    plug(monkeypatch, thing=value)
    result = run("thing")
    assert result.exit_code == ExitCode.FAILED
    assert value in result.stderr
    help_text = run("--help")
    assert help_text.exit_code == 0
    assert "cannot be loaded" in " ".join(help_text.stdout.split())
    assert run("topic", "list").exit_code == 0


def test_a_plugin_cannot_take_the_place_of_our_command(run, monkeypatch):
    plug(monkeypatch, topic=f"{__name__}:plugin")
    assert run("topic", "list").exit_code == 0


# -- intruders ------------------------------------------------------------------------------------

def test_our_packages_come_from_one_place():
    check_packages()


@pytest.mark.parametrize("as_package", [True, False])
def test_an_intruder_is_named_with_its_place(tmp_path, monkeypatch, as_package):
    if as_package:
        (tmp_path / "chaos").mkdir()
        (tmp_path / "chaos" / "__init__.py").touch()
    else:
        (tmp_path / "chaos.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "chaos", raising=False)
    with pytest.raises(CommandFailed, match="import 'chaos' would load") as failed:
        check_packages()
    assert str(tmp_path) in failed.value.message


@pytest.mark.parametrize("how, remedy", [
    ("PYTHONPATH", "without it: env -u PYTHONPATH multiraft"),
    ("directory", "run this command in another directory"),
    ("installed", "virtual environment of its own")])
def test_a_user_s_own_file_can_stay(tmp_path, monkeypatch, how, remedy):
    """Their module is named node.py; the remedy follows from how it came onto the path."""
    (tmp_path / "node.py").touch()
    monkeypatch.syspath_prepend("" if how == "directory" else str(tmp_path))
    monkeypatch.delitem(sys.modules, "node", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if how == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", f"/elsewhere:{tmp_path}")
    if how == "directory":
        monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandFailed, match="import 'node' would load") as failed:
        check_packages(packages=("node",))
    assert remedy in failed.value.do


def test_a_project_with_the_same_names_uses_the_client_beside_its_own_modules(tmp_path):
    for name in ("node", "placement", "chaos", "admin_cli"):
        (tmp_path / f"{name}.py").write_text("THEIRS = True\n")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "__init__.py").write_text("THEIRS = True\n")
    program = tmp_path / "program.py"
    program.write_text("import multiraft.client, multiraft.client.blocking, pyspark_multiraft\n"
                       "import admin_cli, chaos, node, placement, spark\n"
                       "assert all(each.THEIRS for each in "
                       "(admin_cli, chaos, node, placement, spark))\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_named():
    with pytest.raises(CommandFailed, match="'not_there' of this installation is missing"):
        check_packages(distribution_root(), (*PACKAGES, "not_there"))


def test_an_intruder_ends_the_command_before_anything_else(capsys):
    def refuse():
        raise CommandFailed("import 'node' would load /tmp/node.py.", "Remove it.")

    with pytest.raises(SystemExit) as ended:
        main(["topic", "list"], check=refuse)
    assert ended.value.code == ExitCode.FAILED
    assert "/tmp/node.py" in capsys.readouterr().err


# -- completion -----------------------------------------------------------------------------------

@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_the_command(run, shell):
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_MULTIRAFT_COMPLETE" in result.stdout


def test_completion_without_a_shell_says_what_to_run(run):
    assert "multiraft completion" in run("completion").stdout


def complete(monkeypatch, line: str, cword: int) -> list[str]:
    environ = {"_MULTIRAFT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(cword)}
    result = CliRunner().invoke(cli, prog_name="multiraft", env=environ)
    return [row.partition(",")[2] for row in result.stdout.splitlines()]


def test_tab_completes_commands_and_words(monkeypatch):
    assert "produce" in complete(monkeypatch, "multiraft pro", 1)
    assert complete(monkeypatch, "multiraft topic des", 2) == ["describe"]


def test_tab_on_a_topic_asks_the_cluster(monkeypatch, cluster):
    cluster.topics |= {"orders": [], "offers": [], "flights": []}
    monkeypatch.setattr(connection, "open_client", lambda *_, **__: cluster.connect(()))
    monkeypatch.setenv("MULTIRAFT_SERVERS", "127.0.0.1:9101")
    assert complete(monkeypatch, "multiraft consume o", 2) == ["orders", "offers"]


def test_tab_gives_up_on_a_cluster_that_is_silent(monkeypatch):
    """A name that takes long to look up, a node that takes a connection and says nothing."""
    asked, answered = threading.Event(), threading.Event()

    def silent(*_, **__):
        asked.set()
        answered.wait()
        raise ConnectionRefusedError

    monkeypatch.setattr(connection, "open_client", silent)
    monkeypatch.setattr(options, "COMPLETION_S", 0.05)
    monkeypatch.setenv("MULTIRAFT_SERVERS", "127.0.0.1:9101")
    assert complete(monkeypatch, "multiraft consume ", 2) == [""]
    assert asked.is_set()
    answered.set()


def test_tab_has_less_than_a_second():
    assert options.COMPLETION_S < 1


@pytest.mark.parametrize("line, word", [
    ("multiraft consume ", 2), ("multiraft nonsense ", 2), ("multiraft topic nonsense ", 3),
    ("multiraft --servers nonsense consume ", 4), ("multiraft consume t --partition x ", 5),
    ("multiraft dev up --dir /dev/null ", 5), ("multiraft 'unclosed ", 1)])
def test_tab_never_says_a_word(monkeypatch, line, word):
    monkeypatch.setenv("MULTIRAFT_SERVERS", "nonsense")
    environ = {"_MULTIRAFT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(word)}
    result = CliRunner().invoke(cli, prog_name="multiraft", env=environ)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.stderr == ""


@pytest.mark.parametrize("servers", [
    "a:" + "9" * 5_000, "a" * 5_000 + ":1", "a\nb:1", "caf\udce9:1", "\x1b[31m:1", "a:1_0", "a:+5",
    "[::1]", "[::1:9101", "[a]b:1", "//a:1", " ",
    "a:1 b:2", "a" * 64 + ":1", "a..b:1", ".:1", "user@a:1"])
@pytest.mark.parametrize("flag", [True, False], ids=["flag", "environment"])
def test_servers_that_cannot_be_are_a_usage_error(servers, flag):
    session = Session({} if flag else {"MULTIRAFT_SERVERS": servers})
    result = CliRunner().invoke(cli, ["topic", "list", *(["--servers", servers] if flag else [])],
                                obj=session)
    assert result.exit_code == ExitCode.USAGE, result.output
    assert "Traceback" not in result.output and "\x1b" not in result.output
    assert len(result.stderr) < 1_000


# -- whose failure it is --------------------------------------------------------------------------

@pytest.mark.parametrize("error, code, said", [
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x"), 1, "/tmp/x: no space left"),
    (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/x"), 1, "/x: permission denied"),
    (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), 1, "too many open files"),
    (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), 3, "no answer from"),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), 3, "no answer from"),
    (TimeoutError("timed out"), 3, "no answer from")])
def test_only_the_network_s_failures_are_the_network_s(run, cluster, error, code, said):
    cluster.failure = error
    result = run("topic", "list")
    assert result.exit_code == code
    assert said in result.stderr
    assert ("no answer" in result.stderr) == (code == 3)


def test_a_directory_that_is_gone_is_no_traceback(run, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = run("topic", "list", servers=None)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "no cluster is named" in result.stderr


@pytest.mark.parametrize(("flags", "expected"), [
    ((), None),
    (("--tls",), TlsOptions()),
    (("--tls-ca", "ca.pem"), TlsOptions("ca.pem")),
    (("--tls-truststore", "ca.pem", "--tlscert", "c.pem", "--tlskey", "k.pem"),
     TlsOptions("ca.pem", "c.pem", "k.pem")),
    (("--tls-server-name", "node.example.org"), TlsOptions(server_name="node.example.org")),
])
def test_tls_by_our_flags_and_those_of_other_systems(cluster, monkeypatch, flags, expected):
    opened = []

    def open_client(addresses, tls):
        opened.append(tls)
        return cluster.connect(addresses)

    monkeypatch.setattr(connection, "open_client", open_client)
    result = CliRunner().invoke(cli, ["topic", "list", *flags], obj=Session({}, None, "a:1"))
    assert result.exit_code == 0, result.output
    assert opened == [expected]


def test_tls_comes_from_the_flag_before_the_environment():
    environ = {"MULTIRAFT_TLS_CA": "theirs", "MULTIRAFT_TLS_KEY": "key", "MULTIRAFT_TLS": "0"}
    assert find_tls({"tls_ca": "ours"}, environ) == TlsOptions("ours", key="key")
    assert find_tls({}, {"MULTIRAFT_TLS": "1"}) == TlsOptions()
    assert find_tls({}, {"MULTIRAFT_TLS": "0"}) is None
