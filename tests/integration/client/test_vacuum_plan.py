"""VACUUM with a plan, a quarantine, or an inventory, in Python, SQL and the shell."""

import json
import os

import pyarrow as pa
import pytest

import delvec
from delvec.cli import main


@pytest.fixture
def left_over(people, tmp_path):
    paths = [tmp_path / "people" / name for name in ("old one.parquet", "older.parquet")]
    for path in paths:
        path.write_bytes(b"left over")
        os.utime(path, (0, 0))
    return paths


@pytest.fixture
def run(capsys):
    def command(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert ended.value.code == code
        return capsys.readouterr()

    return command


def test_a_plan_is_approved_and_applied(people, left_over, tmp_path):
    plan = people.plan_vacuum(200)
    assert plan.files == ["old%20one.parquet", "older.parquet"]
    plan.save(tmp_path / "plan.jsonl")
    lines = (tmp_path / "plan.jsonl").read_text().splitlines()
    (tmp_path / "plan.jsonl").write_text("\n".join(line for line in lines if "older" not in line))
    approved = delvec.VacuumPlan.load(tmp_path / "plan.jsonl")
    assert (approved.retention_hours, approved.version) == (200, people.version())
    assert people.vacuum(plan=approved)["num-files"] == 1
    assert [path.exists() for path in left_over] == [False, True]
    assert people.vacuum(plan=approved)["result"] == "nothing-to-delete"


def test_a_plan_deletes_nothing_that_is_needed_by_now(people, left_over):
    removed = people.files()["path"][0].as_py() if isinstance(people.files(), pa.Table) else people.files()[0]
    before = people.version()
    people.delete()
    for path in (left_over[0].parent).glob("*.parquet"):
        os.utime(path, (0, 0))
    plan = people.plan_vacuum(0, enforce_retention_duration=False)
    assert any(str(removed).endswith(file) for file in plan.files)
    people.restore(before)
    people.vacuum(plan=plan)
    assert people.to_arrow().num_rows == 10


def test_what_is_no_plan_or_of_another_table_is_refused(lake, people, tmp_path):
    (tmp_path / "plan").write_text('{"format": "another"}\n')
    with pytest.raises(delvec.BadRequest, match="--plan-to"):
        delvec.VacuumPlan.load(tmp_path / "plan")
    other = lake.create_table(tmp_path / "other", "id long")
    with pytest.raises(delvec.BadRequest, match="make a plan for this table"):
        other.vacuum(plan=people.plan_vacuum())


def test_a_quarantine_is_undone_and_purged(people, left_over):
    moved = people.vacuum(quarantine=True)["quarantine"]
    assert not left_over[0].exists()
    assert people.undo_vacuum(moved)["num-files"] == 2
    assert left_over[0].exists()
    assert people.quarantines()[0]["state"] == "undone"
    assert people.purge_quarantine() == [], "it is younger than a week"
    assert [one["quarantine"] for one in people.purge_quarantine(older_than_hours=0)] == [moved]
    with pytest.raises(delvec.QuarantineNotFound, match="quarantine list"):
        people.undo_vacuum(moved)


def test_an_inventory_says_which_files_are_looked_at(people, left_over, tmp_path):
    inventory = pa.table(
        {
            "path": [
                left_over[0].as_uri().replace("%20", " "),
                "older.parquet",
                "/elsewhere/x",
                str(tmp_path),
            ],
            "length": [9, 9, 9, 0],
            "isDir": [False, False, False, True],
            "modificationTime": [0, 0, 0, 0],
        }
    )
    assert people.vacuum(inventory=inventory, dry_run=True)["num-files"] == 2
    assert people.vacuum(inventory=inventory.slice(0, 1))["num-files"] == 1
    assert [path.exists() for path in left_over] == [False, True]
    with pytest.raises(delvec.BadRequest, match="lacks length"):
        people.vacuum(inventory=inventory.drop_columns("length"))
    with pytest.raises(delvec.BadRequest, match="lite"):
        people.vacuum(inventory=inventory, mode="lite")


def test_an_inventory_in_sql(lake, people, left_over, tmp_path):
    inventory = lake.create_table(
        tmp_path / "inventory", "path string, length long, isDir boolean, modificationTime long"
    )
    inventory.append(
        [{"path": str(path), "length": 9, "isDir": False, "modificationTime": 0} for path in left_over]
    )
    query = "(SELECT * FROM inventory WHERE path LIKE '%older%')"
    dry = lake.sql(f"VACUUM people USING INVENTORY {query} RETAIN 200 HOURS DRY RUN")
    assert dry["path"].to_pylist() == [left_over[1].as_uri()]
    lake.sql("VACUUM people USING INVENTORY inventory")
    assert not any(path.exists() for path in left_over)


def test_from_the_shell(people, left_over, tmp_path, run):
    folder, plan = tmp_path / "people", tmp_path / "plan.jsonl"
    assert "wrote a plan to delete 2 files" in run("vacuum", folder, "--plan-to", plan).err
    moved = json.loads(run("vacuum", folder, "--apply", plan, "--quarantine", "--json").out)
    assert moved["num-files"] == 2
    assert moved["quarantine"] in run("quarantine", "list", folder).out
    assert "moved 2 files (18 B) back" in run("quarantine", "undo", folder, moved["quarantine"]).err
    assert "undo" in run("vacuum", folder, "--quarantine").err
    assert "2 quarantines with 2 files" in run("quarantine", "purge", folder, "--older-than", "0").err
    run("vacuum", folder, "--apply", plan, "--retain", "1", code=2)
