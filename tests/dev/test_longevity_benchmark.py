"""``python -m benchmarks.longevity``: the rows and refreshes of its table, its arithmetic, and its page."""

from pathlib import Path

import duckdb
import numpy as np
import pytest
from benchmarks.dml_tables import row_state
from benchmarks.longevity import Effort
from benchmarks.longevity_contenders import LIVING, Compacted, OnDuckDBByPolicies
from benchmarks.longevity_figures import BY_POLICIES, PEERS, Lives, Round, goals
from benchmarks.longevity_report import PLOT, TITLE, write_page
from benchmarks.sales import QUERIES, SALES, make_tables, refreshes, rows_of, staying_ticket
from benchmarks.tables import clone

SCALE = 0.004


def test_a_ticket_has_the_same_lines_again():
    tickets, days = np.arange(1_000), np.full(1_000, 2_450_900)
    rows, again = rows_of(tickets, days), rows_of(tickets[500:600], days[:100])
    corrected = rows_of(tickets, days, corrected=True)

    assert rows.schema == SALES
    assert rows.filter(duckdb_mask(rows, "ss_ticket_number BETWEEN 500 AND 599")).equals(again)
    keys = "SELECT count(*), count(DISTINCT (ss_ticket_number, ss_item_sk)), avg(ss_quantity * ss_sales_price - ss_ext_sales_price) FROM rows"
    [(count, different, error)] = duckdb.sql(keys).fetchall()
    assert (count, error) == (different, 0)
    assert corrected.select(["ss_item_sk"]).equals(rows.select(["ss_item_sk"]))
    assert not corrected.select(["ss_quantity"]).equals(rows.select(["ss_quantity"]))


def duckdb_mask(rows, condition):
    return duckdb.sql(f"SELECT {condition} FROM rows").to_arrow_table().column(0)


def test_contenders_keep_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    templates = make_tables(tmp_path / "kept", tmp_path / "made", SCALE, 4)
    begun = row_state(templates["dv"])
    changes = list(refreshes(tmp_path / "refreshes", SCALE, 2))
    states, done = {}, []
    for kind in (OnDuckDBByPolicies, Compacted):
        contender = kind(tmp_path)
        table = clone(templates[kind.template], tmp_path / kind.__name__)
        contender.begin(table)
        for refresh in changes:
            contender.append(table, refresh.inserted)
            for condition in refresh.conditions:
                contender.delete(table, condition)
            contender.merge(table, refresh.corrections)
            done += contender.upkeep(table)
        for text in QUERIES.values():
            places = {"sales": table, "item": templates["item"]}
            contender.query(text.replace("{ticket}", str(staying_ticket(SCALE))), places)
        states[kind.name] = row_state(table)
        contender.close()

    assert len(set(states.values())) == 1
    assert begun not in states.values()
    # As many rows are inserted as deleted: about 1 % in each round.
    assert abs(states[Compacted.name][0] / begun[0] - 1) < 0.02
    assert any("files became" in each for each in done)


def _lives(path: Path, seconds: float) -> Lives:
    lives = Lives(path)
    for name in LIVING:
        life = lives.begin(name)
        written = 100 if name in BY_POLICIES else 200
        life.rounds = [
            Round({query: [1.0, 3.0, 1.0] for query in QUERIES}),
            Round({query: [2.0] for query in QUERIES}, {"MERGE": 1.0}, put=(2, written), state="(1, 2)"),
        ]
        life.fresh = {query: [1.0] for query in QUERIES}
        life.aged = {query: [seconds] for query in QUERIES}
    lives.save()
    return Lives(path)


@pytest.mark.parametrize(("seconds", "verdict"), [(1.04, "met"), (1.06, "**not met**")])
def test_a_table_may_become_slower_by_a_twentieth(tmp_path: Path, seconds: float, verdict: str) -> None:
    found = {goal.text: goal.verdict for goal in goals(_lives(tmp_path / "kept.json", seconds), 1)}
    slower = [text for text in found if "slower" in text]
    assert [found[text] for text in slower] == [verdict] * 2
    assert [found[f"{name}: writes less than {peer}"] for name in BY_POLICIES for peer in PEERS] == [
        "met"
    ] * 4


def test_rounds_that_were_not_run_are_not_judged(tmp_path: Path) -> None:
    assert {goal.verdict for goal in goals(_lives(tmp_path / "kept.json", 1.0), 10)} == {"not measured"}


def test_the_rate_is_the_mean_change_from_round_to_round(tmp_path: Path) -> None:
    life = _lives(tmp_path / "kept.json", 1.0).get(PEERS[0])
    assert life is not None
    assert life.rate == 1.0
    life.rounds.append(Round({query: [1.0] for query in QUERIES}))
    assert life.rate == 0.25


def test_the_page_has_every_contender_and_a_failure(tmp_path: Path) -> None:
    lives = _lives(tmp_path / "kept.json", 1.0)
    lives.begin(PEERS[1]).failure = "its process ended"
    page = tmp_path / "page.md"
    write_page(page, lives, Effort(), 1_000)
    text = page.read_text()
    assert TITLE in text
    assert (tmp_path / PLOT).exists()
    assert all(f"| {name} | " in text for name in LIVING)
    assert f"| {PEERS[1]} | failed: its process ended |" in text
