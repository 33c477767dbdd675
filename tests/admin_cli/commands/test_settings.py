"""Settings of topics and of the cluster: set, deleted, shown, completed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from admin_cli.failures import ExitCode
from admin_cli.main import cli
from multiraft.settings.registry import SETTINGS, Role


def rows(result) -> dict[str, list[str]]:
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}


@pytest.mark.parametrize("flag", ["-c", "--config", "--topic-config", "--set"])
def test_topics_are_created_with_settings(run, cluster, flag):
    made = run("topic", "create", "a", "b", flag, "retention.ms=7", flag, "preallocate = TRUE")
    assert made.exit_code == 0, made.output
    assert cluster.settings == {name: {"retention.ms": "7", "preallocate": "TRUE"}
                                for name in ("a", "b")}


def test_a_refused_setting_creates_nothing_and_has_the_reason(run, cluster):
    refused = run("topic", "create", "a", "-c", "retention.m=7")
    assert refused.exit_code == ExitCode.FAILED
    assert "did you mean retention.ms?" in refused.stderr
    assert "multiraft help settings" in refused.stderr
    assert not cluster.topics


@pytest.mark.parametrize("flags", [("--set", "--delete"), ("-c", "-d"),
                                   ("--add-config", "--delete-config")])
def test_settings_of_a_topic_are_set_and_deleted(run, cluster, flags):
    run("topic", "create", "a", "-c", "retention.ms=7", "-c", "segment.ms=5")
    put, delete = flags
    changed = run("topic", "alter", "a", put, "retention.bytes=9", delete, "retention.ms")
    assert (changed.exit_code, changed.stderr) == (0, "Topic a: settings changed.\n")
    assert cluster.settings["a"] == {"segment.ms": "5", "retention.bytes": "9"}


def test_a_dry_run_changes_nothing(run, cluster):
    run("topic", "create", "a")
    result = run("topic", "alter", "a", "--set", "retention.ms=7", "--dry-run")
    assert "nothing was changed" in result.stderr
    assert cluster.settings["a"] == {}
    assert run("topic", "alter", "a", "--set", "retention.ms=x",
               "--dry-run").exit_code == ExitCode.FAILED


@pytest.mark.parametrize("words, said", [
    ((), "--set NAME=VALUE or --delete NAME"),
    (("--dry-run",), "--set NAME=VALUE or --delete NAME"),
    (("--set", "retention.ms"), "'retention.ms' is not NAME=VALUE"),
    (("--set", "=7"), "is not NAME=VALUE"),
    (("--set", "a=1", "--set", "a=2"), "'a' is named twice"),
    (("--set", "a=1", "--delete", "a"), "'a' is both set and deleted"),
    (("--delete", ""), "is not the name of a setting"),
    (("--set", "a=" + "x" * 2_000), "1024 characters at most"),
    ([word for number in range(70) for word in ("--set", f"a{number}=1")], "64 at most"),
])
def test_a_wrong_line_is_answered_with_the_form(run, words, said):
    run("topic", "create", "a")
    for command in (("topic", "alter", "a"), ("cluster", "settings")):
        result = run(*command, *words)
        if command[0] == "cluster" and not words:
            continue  # shows the defaults
        assert result.exit_code == ExitCode.USAGE
        assert said in " ".join(result.stderr.split())


def test_a_topic_that_does_not_exist_is_named(run):
    result = run("topic", "alter", "none", "--set", "retention.ms=7")
    assert result.exit_code == ExitCode.NOT_FOUND


def test_a_description_has_value_source_and_effect(run, cluster):
    run("topic", "create", "a", "-c", "retention.ms=7")
    run("cluster", "settings", "--set", "max.message.bytes=1000")
    found = rows(run("topic", "describe", "a", "--settings"))
    assert found["retention.ms"] == ["7", "topic", "in", "effect"]
    assert found["cleanup.policy"] == ["delete", "default", "in", "effect"]
    assert found["delete.retention.ms"] == [
        "86400000", "default", *"stored, not carried out by this release".split()]
    assert found["max.message.bytes"] == ["1000", "cluster", "in", "effect"]
    assert found["segment.ms"] == ["604800000", "default", "no", "effect"]
    assert found["min.insync.replicas"] == ["2", "default", "fixed"]
    assert len(found) == len(SETTINGS) + 1
    assert [*found][1:3] == ["max.message.bytes", "retention.ms"], "those that are set come first"


def test_several_topics_are_described_with_their_names(run):
    run("topic", "create", "a", "b")
    lines = run("topic", "describe", "b", "a", "-c").stdout.splitlines()
    assert [line for line in lines if line in ("a", "b")] == ["b", "a"]


def test_json_has_all_values_of_a_setting(run):
    run("topic", "create", "a", "-c", "retention.ms=7")
    run("cluster", "settings", "--set", "retention.ms=8")
    answer = json.loads(run("topic", "describe", "a", "--settings", "--json").stdout)
    assert answer["name"] == "a"
    assert {row["name"]: row for row in answer["settings"]}["retention.ms"] == {
        "name": "retention.ms", "value": "7", "source": "topic", "type": "long",
        "effect": "in effect",
        "values": [{"value": "7", "source": "topic"}, {"value": "8", "source": "cluster"},
                   {"value": "-1", "source": "default"}]}


def test_defaults_of_the_cluster_are_shown_changed_and_deleted(run, cluster):
    assert rows(run("cluster", "settings"))["retention.ms"][:2] == ["-1", "default"]
    changed = run("cluster", "settings", "--set", "retention.ms=8")
    assert (changed.exit_code, changed.stderr) == (0, "Defaults of the cluster changed.\n")
    assert rows(run("cluster", "settings"))["retention.ms"][:2] == ["8", "cluster"]
    answer = json.loads(run("cluster", "settings", "--json").stdout)
    assert {row["name"]: row["value"] for row in answer["settings"]}["retention.ms"] == "8"
    assert run("cluster", "settings", "--delete", "retention.ms").exit_code == 0
    assert cluster.settings[""] == {}
    assert run("cluster", "settings", "--json", "--set", "a=1").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("word, wanted", [("--set", "retention.ms="), ("--delete", "retention.ms")])
def test_names_are_completed(word, wanted):
    line = f"multiraft topic alter a {word} retention.m"
    result = CliRunner().invoke(cli, prog_name="multiraft", env={
        "_MULTIRAFT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "5"})
    assert [row.partition(",")[2] for row in result.stdout.splitlines()] == [wanted]


def test_the_page_has_every_setting_that_is_implemented(run):
    page = run("help", "settings").stdout
    assert {name for name, setting in SETTINGS.items() if name in page} == {
        name for name, setting in SETTINGS.items() if setting.role is Role.IMPLEMENTED}
