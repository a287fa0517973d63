"""The alerts and the dashboard name metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from ruamel.yaml import YAML

from silverfold.jobs.metrics.definitions import METRICS, PREFIX

HERE = files("silverfold.jobs.metrics")
TEXT = (HERE / "alerts.yml").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = [rule for group in YAML(typ="safe").load(TEXT)["groups"] for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads((HERE / "dashboard.json").read_text(encoding="utf-8"))
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
NAMED = [*((rule["expr"], rule["annotations"]["summary"]) for rule in RULES)]
NAMED += [(target["expr"], target["legendFormat"]) for target in TARGETS]

PARTS = {name: ("_count", "_sum") if defined.type == "summary" else ("",) for name, defined in METRICS.items()}
SAMPLES = {PREFIX + name + part: name for name, parts in PARTS.items() for part in parts}


def metrics_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each metric in an expression, as it is served, and the labels it is chosen by."""
    for name, chosen in re.findall(rf"({PREFIX}\w+)(?:\{{(.*?)\}})?", expression):
        yield name, set(re.findall(r"(\w+)=", chosen))


@pytest.mark.parametrize(("expression", "text"), NAMED)
def test_metrics_and_labels_are_there(expression: str, text: str):
    found = [(METRICS[SAMPLES[name]], chosen) for name, chosen in metrics_in(expression)]
    common = set.intersection(*(set(defined.labels) for defined, _ in found))
    grouped = [set(labels.split(", ")) for labels in re.findall(r"by \((.*?)\)", expression)]
    shown = set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", text))

    assert all(chosen <= set(defined.labels) for defined, chosen in found)
    assert all(labels <= common for labels in grouped)
    assert shown <= (set.intersection(*grouped) if grouped else common)


@pytest.mark.parametrize("expressions", [[rule["expr"] for rule in RULES], [each["expr"] for each in TARGETS]])
def test_every_metric_is_looked_at(expressions: list[str]):
    looked_at = {SAMPLES[name] for expression in expressions for name, _ in metrics_in(expression)}

    assert looked_at == set(METRICS)


def test_each_alert_has_a_name_a_severity_and_a_comment_on_what_to_do():
    lines = TEXT.splitlines()
    uncommented = [
        line for before, line in pairwise(lines) if "- alert:" in line and not before.strip().startswith("# ")
    ]

    assert uncommented == []
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert {rule["labels"]["severity"] for rule in RULES} == {"critical", "warning"}


def test_the_dashboard_has_a_row_for_each_question():
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]

    assert rows == ["Is it connected?", "How far behind is it?", "What holds?", "What is slow?"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
