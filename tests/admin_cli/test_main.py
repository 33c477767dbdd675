"""The root command: words from elsewhere, servers, plug-ins, intruders, completion."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from admin_cli import connection
from admin_cli import main as main_module
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.main import COMMANDS, ELSEWHERE, cli, main
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


def test_words_from_elsewhere_lead_to_commands_that_exist():
    for words in ELSEWHERE.values():
        command = cli
        for word in words.split():
            if not word.startswith("-"):
                command = command.get_command(click.Context(cli), word)
                assert command is not None, words


@pytest.mark.parametrize("flag", ["--bootstrap-server", "--brokers", "--server"])
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
