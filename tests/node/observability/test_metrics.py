"""Names of metrics: what is exposed, documented, drawn and alerted on is the same."""

import json
import re
from pathlib import Path

import pytest

from node.histogram import Histogram
from node.observability import metrics
from node.observability.group_health import Survey
from node.observability.phase import Life
from node.observability.statistics import Sample
from tests.node.harness import in_trio, serving

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "multiraft.json").read_text())
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()

#: What every exporter of a process has.
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes",
           "process_virtual_memory_bytes", "process_start_time_seconds", "process_open_fds",
           "process_max_fds"}
#: Metrics with series for the 20 largest topics only (``largest_topics.TOPICS_MAX``).
OF_LARGEST_TOPICS = {"multiraft_topic_bytes", "multiraft_topic_records"}
#: What Prometheus and Grafana bring: labels of targets and of histograms.
LABELS_OF_OTHERS = {"instance", "job", "le"}

TYPES = {**{name: ("gauge", labels) for name, labels, _ in metrics._LIFE},
         **{family.name: (family.kind, family.labels) for family in metrics.FAMILIES}}


def expressions() -> list[str]:
    """Every query of the dashboard and every expression of the alerts."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    found += [each["expr"] for each in DASHBOARD["annotations"]["list"]]
    found += [each["query"] for each in DASHBOARD["templating"]["list"]
              if each["type"] == "query"]
    blocks = re.findall(r"^ {8}expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", ALERTS, re.MULTILINE)
    alerts = [" ".join((folded or plain).split()) for folded, plain in blocks]
    assert len(alerts) == ALERTS.count("- alert:") > 10
    return found + alerts


EXPRESSIONS = expressions()


def named(expression: str) -> list[tuple[str, str]]:
    """(metric, its selector's inside) of an expression."""
    return re.findall(r"\b((?:multiraft|process)_\w+)(?:\{([^}]*)\})?", expression)


def family_of(name: str) -> str:
    """The metric behind a series of a histogram."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if TYPES.get(base, ("",))[0] == "histogram" else name


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_query_names_metrics_and_labels_that_exist(expression):
    metrics_named = named(expression)
    assert metrics_named or expression.startswith("up{"), expression
    labels: set[str] = set()
    for name, selector in metrics_named:
        if name in PROCESS:
            continue
        family = family_of(name)
        assert family in TYPES, f"{name} in {expression}"
        assert (TYPES[family][0] == "histogram") == (family != name), f"{name}: a series of one"
        labels |= set(TYPES[family][1])
        for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', selector):
            assert label in {*TYPES[family][1], *LABELS_OF_OTHERS}, f"{label} in {expression}"
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        assert set(re.split(r"\s*,\s*", group)) <= labels | LABELS_OF_OTHERS, expression


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_counters_are_looked_at_as_rates_and_nothing_else_is(expression):
    for function, name in re.findall(r"\b(rate|increase)\((\w+)", expression):
        kind = "counter" if name in PROCESS else TYPES[family_of(name)][0]
        assert kind in ("counter", "histogram"), f"{function}({name})"
    bare = re.sub(r"\b(?:rate|increase)\([^)]*\)", "", expression)
    for name, _selector in named(bare):
        assert name in PROCESS or TYPES[family_of(name)][0] == "gauge", f"{name} in {expression}"


def test_every_metric_is_drawn_or_alerted_on():
    used = {family_of(name) for expression in EXPRESSIONS for name, _ in named(expression)}
    assert set(TYPES) - used == {"multiraft_recovery_segments"}, "seen only during recovery"


def test_panels_have_places_of_their_own():
    seen: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert seen.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_page_has_the_table_of_what_is_exposed():
    rows = re.findall(r"^\| `(multiraft_\w+)` \| (\w+) \| ([^|]*)\| ([^|]*) \|$", PAGE,
                      re.MULTILINE)
    always = {name: text for name, _labels, text in metrics._LIFE}
    texts = {**{name: f"{text} *always*" for name, text in always.items()},
             **{family.name: family.help for family in metrics.FAMILIES}}
    assert [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text)
            for name, kind, labels, text in rows] == [
        (name, kind, tuple(labels), texts[name]) for name, (kind, labels) in TYPES.items()]


@pytest.mark.parametrize("name", TYPES)
def test_names_follow_the_conventions(name):
    kind, labels = TYPES[name]
    assert re.fullmatch(r"multiraft_[a-z]+(_[a-z]+)*", name)
    assert name.endswith("_total") == (kind == "counter")
    assert kind != "histogram" or name.endswith("_seconds")
    assert not {"ms", "us", "milliseconds", "kib", "mib"} & {*name.split("_")}, "base units only"
    unbounded = {"partition", "group", "client"}
    if name not in OF_LARGEST_TOPICS:
        unbounded.add("topic")
    assert not set(labels) & unbounded, "bounded labels only"


def test_without_the_loop_only_what_needs_none_is_told():
    text = metrics.render(Life(), None, "")[1].decode()
    types = dict(re.findall(r"^# TYPE (multiraft_\w+) (\w+)$", text, re.MULTILINE))
    assert types == {name: "gauge" for name, _labels, _text in metrics._LIFE}


@in_trio
async def test_a_real_node_exposes_exactly_the_table_in_both_formats(tmp_path):
    async with serving(tmp_path) as node:
        survey = await node.admin.group_health.fresh()
        survey.peer_lag[2] = (3, 40)
        sample = node.status.statistics.sample(survey)
        sample.refusals["produce"][1] = 5
        assert not sample.peers_up and not sample.round_trips, "a cluster of one has no peers"
        sample.peers_up.update({2: True, 3: False})
        sample.round_trips[2] = Histogram()
        sample.round_trips[2].observe(300)
        sample.certificates["client"] = 1_900_000_000
        for accept in ("", "application/openmetrics-text; version=1.0.0"):
            content_type, body = metrics.render(node.life, sample, accept)
            types = dict(re.findall(r"^# TYPE (multiraft_\w+) (\w+)$", body.decode(),
                                    re.MULTILINE))
            if accept:
                types = {name + "_total" * (kind == "counter"): kind
                         for name, kind in types.items()}
            assert types == {name: kind for name, (kind, _labels) in TYPES.items()}
        text = body.decode()
    assert 'multiraft_peer_lag_bytes{peer="2"} 40.0' in text
    assert 'multiraft_peer_up{peer="2"} 1.0' in text
    assert 'multiraft_peer_up{peer="3"} 0.0' in text
    assert 'multiraft_peer_round_trip_seconds_bucket{le="0.000512",peer="2"} 1.0' in text
    assert 'multiraft_certificate_expiry_timestamp_seconds{port="client"} 1.9e+09' in text
    assert "multiraft_metadata_leader_known 1.0" in text
    assert 'multiraft_rejections_total{reason="NOT_LEADER",request="produce"} 5.0' in text
    assert 'multiraft_disk_write_duration_seconds_bucket{le="0.000128"}' in text


def test_the_time_of_a_scrub_is_in_seconds():
    name = "multiraft_scrub_completed_timestamp_seconds"
    family = next(each for each in metrics.FAMILIES if each.name == name)
    [[_labels, value]] = family.read(Sample({"scrub_completed_ms": 1_700_000_000_500}, Survey()))
    assert value == pytest.approx(1_700_000_000.5)


def test_a_histogram_is_exposed_whole():
    histogram = Histogram()
    for micros in (100, 200, 3_000_000):
        histogram.observe(micros)
    family = next(each for each in metrics.FAMILIES
                  if each.name == "multiraft_round_duration_seconds")
    sample = Sample({}, Survey(), {"round": histogram})
    series = {(one.name, one.labels.get("le")): one.value
              for one in metrics._of_sample(family, sample).samples}
    assert series["multiraft_round_duration_seconds_count", None] == 3
    assert series["multiraft_round_duration_seconds_sum", None] == pytest.approx(3.0003)
    assert series["multiraft_round_duration_seconds_bucket", "0.000128"] == 1
    assert series["multiraft_round_duration_seconds_bucket", "+Inf"] == 3
