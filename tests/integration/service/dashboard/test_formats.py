"""Numbers and times for people."""

from datetime import UTC, datetime, timedelta

import pytest

from delvec_service.dashboard.charts import fleet_charts
from delvec_service.dashboard.formats import age, counted, did, metrics, parameters, rate, short, span, title


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.2, "< 1 s"),
        (1, "1 s"),
        (2.5, "2.5 s"),
        (59, "59 s"),
        (60, "1 min"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (86_400 * 12, "12 d"),
        (86_400 * 4000, "11 y"),
    ],
)
def test_a_span_has_the_largest_unit_that_fits(seconds, text):
    assert span(seconds) == text


def test_an_age_is_relative():
    now = datetime.now(UTC)

    assert age((now - timedelta(hours=2)).isoformat()) == "2 h ago"
    assert age((now + timedelta(days=20)).isoformat()).startswith("in ")
    assert age(now.timestamp() * 1000) == "just now"
    assert age("nonsense") == "nonsense"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.04, "< 0.1"), (0.25, "0.2"), (9.96, "10"), (1234.5, "1,234")]
)
def test_rates_are_not_rounded_to_nothing(value, text):
    assert rate(value) == text


def test_nouns_agree():
    assert [counted(one, "file") for one in (0, 1, 2000, None)] == [
        "0 files",
        "1 file",
        "2,000 files",
        "- files",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ConcurrentAppendException", "Rows were added that it should have read"),
        ("system.dv-purge", "Purge"),
        ("grant_role", "Grant role"),
        ("small-files", "Small files"),
        ("numOutputRows", "Output rows"),
        ("executionTimeMs", "Execution time ms"),
        ("number", "Number"),
        ("ConcurrentDeleteRead", "Concurrent delete read"),
        ("", ""),
    ],
)
def test_names_are_told_in_words(name, words):
    assert title(name) == words


def test_parameters_of_a_commit_are_told_without_json():
    values = {"predicate": '["(id % 7 = 0)"]', "zOrderBy": "[]", "auto": "false", "mode": "Append"}
    values |= {"partitionBy": '["country","day"]', "properties": "{}", "nothing": None, "deep": "[" * 100_000}

    by_label = dict(parameters(values))

    assert by_label.pop("Deep").startswith("[[")
    assert by_label == {
        "Predicate": "(id % 7 = 0)",
        "Auto": "false",
        "Mode": "Append",
        "Partition by": "country, day",
    }
    assert parameters(None) == []


def test_metrics_of_a_commit_have_units():
    values = {
        "numOutputRows": "2286",
        "executionTimeMs": 1291,
        "numRemovedBytes": 384276,
        "numAddedFiles": "0",
    }
    values |= {"p25FileSize": 26392, "other": "text", "huge": 10**400}

    by_label = dict(metrics(values))

    assert by_label.pop("Huge").startswith("1000")
    assert by_label == {
        "Output rows": "2,286",
        "Execution time": "1.3 s",
        "Removed bytes": "375.3 KiB",
        "P25 file size": "25.8 KiB",
        "Other": "text",
    }


def test_plots_of_the_fleet_are_told_in_words():
    point = {"size-in-bytes": 1, "deleted-bytes": 1, "scan-debt-seconds": 60.0}
    hour = {"since": "2026-01-01T00:00:00Z", "committed": 3, "conflicts": 1}
    points = [point | {"at": "2026-01-01T00:00:00Z"}, point | {"at": "2026-01-02T00:00:00Z"}]

    words = [one["words"] for one in fleet_charts({"points": points, "intervals": [hour]})]

    assert words[0] == "Scan debt. sampled tables: from 1 min to 1 min, at most 1 min."
    assert words[-1] == "Conflicts per hour. conflicts: 1 in total."
    assert len(fleet_charts({"points": points[:1], "intervals": [hour]})) == 2


def test_what_a_request_changed_is_told_once():
    assert did("set_policy", "policy nightly") == "Set policy: nightly"
    assert did("create_token", "token etl-2026 of etl") == "Create token: etl-2026 of etl"
    assert did("commit", "DELETE") == "Commit: DELETE"
    assert did("drop_table", None) == "Drop table"


def test_an_id_is_told_by_its_first_digits():
    assert short("aa36e49a-028c-4922-b7ec-ea0173d36758") == "aa36e49a"
    assert short("nightly-job-of-etl") == "nightly-job-of-etl"
    assert short("") == ""
