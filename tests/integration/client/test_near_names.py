"""A table that is not there: which was perhaps meant, wherever a name is given."""

import pytest

import delvec
from delvec.cli import main
from delvec_errors import TableNotFound

CALLS = {
    "table": lambda lake: lake.table("poeple"),
    "rename": lambda lake: lake.rename("poeple", "other"),
    "drop": lambda lake: lake.drop("poeple"),
    "snapshot": lambda lake: lake.snapshot(["people", "poeple"]),
    "transaction": lambda lake: lake.transaction(["poeple"]),
    "sql": lambda lake: lake.sql("SELECT * FROM poeple"),
    "grant": lambda lake: lake.access.grant("reader", "etl", table="poeple"),
    "revoke": lambda lake: lake.access.revoke("etl", table="poeple"),
    "policy": lambda lake: lake.maintenance.set_policy("p", "system.checkpoint", table="poeple"),
    "tasks": lambda lake: lake.maintenance.tasks("poeple"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_misspelled_name(lake, people, name):
    with pytest.raises(TableNotFound, match=r"'poeple'.* Did you mean 'people'\?") as caught:
        CALLS[name](lake)

    assert caught.value.details["suggestions"] == ["people"]
    assert caught.value.details["table"] == "poeple"


def test_a_name_like_no_other(lake, people):
    with pytest.raises(TableNotFound) as caught:
        lake.drop("elsewhere")

    assert caught.value.message.endswith("create it, or open it by its location, which registers it.")
    assert "suggestions" not in caught.value.details


def test_a_dropped_table_is_looked_for_among_those(lake, people, tmp_path):
    lake.register(people.location, managed=True)
    lake.create_table(tmp_path / "peoples", "id long")
    lake.drop("people")

    with pytest.raises(TableNotFound, match=r"Did you mean 'people'\?$"):
        lake.undrop_table("poeple")
    with pytest.raises(TableNotFound, match=r"Did you mean 'people'\?$"):
        lake.delete_dropped_table("poeple")


@pytest.mark.parametrize(
    "command", [["detail"], ["health"], ["drop"], ["vacuum"], ["quarantine", "list"], ["history"], ["check"]]
)
def test_in_the_shell(capsys, tmp_path, command):
    with delvec.connect() as lake:
        lake.create_table(tmp_path / "people", "id long")

    with pytest.raises(SystemExit) as ended:
        main([*command, "poeple"])

    assert ended.value.code == 1
    assert "Did you mean 'people'?" in capsys.readouterr().err
