"""The declared numbers of a table's health, and what names them elsewhere."""

from pathlib import Path
from typing import get_args

from delvec_contract.health import HealthResponse, HealthSample
from delvec_contract.health_metrics import FileMetrics, HealthOrder, metrics_of

PAGE = Path(__file__).parents[3] / "docs" / "health.md"


def row(name, metric):
    description = FileMetrics.model_fields[name].description.removesuffix(".")
    gauge = f"`delvec_table_{metric.gauge[0]}{{table}}` |" if metric.gauge else "|"
    return f"| `{name.replace('_', '-')}` | {description[0].lower()}{description[1:]} | {gauge}"


def test_the_page_lists_every_number():
    expected = [row(name, metric) for name, metric in metrics_of(FileMetrics).items()]
    section = PAGE.read_text().partition("\n## Numbers\n")[2]
    table = [line for line in section.partition("\n\n")[2].splitlines() if line.startswith("|")]

    assert table[2 : 2 + len(expected)] == expected, "\n".join(["docs/health.md lacks:", *expected])


def test_every_number_is_declared():
    assert metrics_of(FileMetrics).keys() == FileMetrics.model_fields.keys()
    assert metrics_of(FileMetrics).items() <= metrics_of(HealthResponse).items()


def test_tables_are_listed_by_numbers_of_samples():
    assert {order.replace("-", "_") for order in get_args(HealthOrder)} <= metrics_of(HealthSample).keys()


def test_gauges_and_places_on_the_page_belong_to_one_number():
    declared = [*metrics_of(FileMetrics).values(), *metrics_of(HealthSample).values()]
    distinct = dict.fromkeys(declared)
    for of in (
        [metric.gauge[0] for metric in distinct if metric.gauge],
        [(metric.row.group, metric.row.place) for metric in distinct if metric.row],
        [metric.plot.place for metric in distinct if metric.plot],
    ):
        assert len(of) == len(set(of))
