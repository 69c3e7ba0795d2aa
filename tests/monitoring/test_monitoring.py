"""The Grafana dashboard and the alert rules: every query names metrics and labels that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "monitoring" / "grafana" / "delvec.json").read_text())
RULES_FILE = ROOT / "monitoring" / "prometheus" / "delvec-alerts.yaml"
RULES = [rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]]
# tests/integration/service/test_metrics.py compares the pages with what a service answers.
METRICS = {
    name: set(filter(None, labels.split(",")))
    for name, labels in re.findall(
        r"`(delvec_\w+)(?:\{([^`]*)\})?`",
        "".join((ROOT / "docs" / page).read_text() for page in ("monitoring.md", "health.md")),
    )
} | {"up": set()}
OF_PROMETHEUS = {"job", "instance", "le"}


def queries():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']}-{target['refId']}")
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule["alert"])


def labels_of(name):
    """Return the labels of a series."""
    if name not in METRICS:
        name = re.sub(r"_(bucket|count|sum)$", "", name)
    assert name in METRICS, f"there is no metric {name}"
    return METRICS[name] | OF_PROMETHEUS


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_names_metrics_and_labels_that_there_are(query):
    names = set(re.findall(r"\b(delvec_\w+|up(?=\{))", query))
    assert names
    labels = {name: labels_of(name) for name in names}
    for name, selector in re.findall(r"\b(delvec_\w+|up)\{([^}]*)\}", query):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
            assert label in labels[name], (name, label)
    grouped = {one.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for one in group.split(",")}
    assert grouped <= set.union(*labels.values())
    assert query.count("(") == query.count(")")


def test_every_alert_says_what_to_do():
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert len(rule["annotations"]["runbook"]) > 60, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_legends_name_labels_that_the_query_keeps():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), (panel["title"], label)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus")
def test_prometheus_takes_rules_and_queries(tmp_path):
    expressions = [
        re.sub(r"\$__rate_interval|\$(\w+)", lambda found: "5m" if found[1] is None else ".*", one.values[0])
        for one in queries()
    ]
    rules = [{"record": f"query:{number}", "expr": one} for number, one in enumerate(expressions)]
    written = tmp_path / "queries.yaml"
    written.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    for file in (RULES_FILE, written):
        checked = subprocess.run(
            ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
