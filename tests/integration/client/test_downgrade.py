"""``table.downgrade()`` and ``delvec downgrade``: a reader without deletion vector support reads the table."""

import deltalake
import pyarrow as pa
import pytest
from tests.support.tables import ids

from delvec.cli import main
from delvec_errors import ConcurrentModification

FEATURE = "deletionVectors"


@pytest.fixture
def table(lake, tmp_path):
    table = lake.create_table(tmp_path / "table", "id long")
    for number in range(3):
        table.append(pa.table({"id": range(number * 10, number * 10 + 10)}))
    table.delete("id % 10 = 3 and id < 20")
    return table


def features(table):
    return set(table.detail()["tableFeatures"])


def test_a_reader_without_deletion_vectors_reads_it_afterwards(table, tmp_path):
    before = ids(table)
    with pytest.raises(Exception, match=FEATURE):
        deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    planned = table.downgrade(dry_run=True)
    assert [step.name for step in planned.steps] == ["turn-off", "purge", "drop-feature"]
    assert "2 files with deletion vectors are rewritten" in str(planned)
    assert FEATURE in features(table)

    seen = []
    done = table.downgrade(progress=seen.append)

    assert list(done.steps) == seen
    assert [step.name for step in seen] == ["turn-off", "purge", "drop-feature"]
    assert done.is_complete
    assert seen[-1].version == table.version()
    assert FEATURE not in features(table)
    read = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(read["id"].to_pylist()) == before == ids(table)
    assert table.check()["num-errors"] == 0
    assert table.downgrade().steps == ()
    # DELETE still works, by rewriting files.
    assert table.delete("id = 0")["numDeletedRows"] == 1


def test_it_goes_on_where_it_was_interrupted(table, monkeypatch):
    before = ids(table)
    monkeypatch.setattr(type(table.alter), "drop_feature", _fails)
    with pytest.raises(ConcurrentModification):
        table.downgrade()
    monkeypatch.undo()
    assert "delta.enableDeletionVectors" not in table.detail()["properties"]

    done = table.downgrade()

    assert [step.name for step in done.steps] == ["drop-feature"]
    assert (FEATURE in features(table), ids(table)) == (False, before)


def _fails(*_arguments, **_options):
    raise ConcurrentModification("interrupted")


def test_a_vector_that_is_committed_meanwhile_is_purged_too(table, monkeypatch):
    """By a writer that began before the property was unset."""
    purge = type(table.optimize).purge
    once = iter([lambda: _foreign_delete(table)])

    def purged(self, *arguments, **options):
        done = purge(self, *arguments, **options)
        if not options.get("dry_run"):
            for late in once:
                late()
        return done

    monkeypatch.setattr(type(table.optimize), "purge", purged)
    done = table.downgrade()
    assert [step.name for step in done.steps].count("purge") == 2
    assert FEATURE not in features(table)
    assert 29 not in ids(table)


def _foreign_delete(table):
    table.alter.enable_deletion_vectors()
    table.delete("id = 29")
    table.alter.unset_properties("delta.enableDeletionVectors")


def test_older_versions_are_waited_for(table):
    done = table.downgrade(truncate_history=True)

    assert not done.is_complete
    assert done.steps[-1].name == "truncate-history"
    assert "logRetentionDuration" in done.steps[-1].waits_for
    assert FEATURE not in features(table)
    assert [step.name for step in table.downgrade(truncate_history=True).steps] == ["truncate-history"]


def test_a_table_without_the_feature_needs_no_step(lake, tmp_path):
    table = lake.create_table(
        tmp_path / "other", "id long", properties={"delta.enableDeletionVectors": "false"}
    )
    assert table.downgrade().is_complete
    assert "neither has deletion vectors" in str(table.downgrade(dry_run=True))


def test_in_the_shell(table, capsys, monkeypatch):
    monkeypatch.delenv("DELVEC_URL", raising=False)
    monkeypatch.setenv("DELVEC_ROOTS", table.location)
    for options, says in (
        (["--dry-run"], "1. turn-off: "),
        ([], "drop-feature: readers no longer need"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["downgrade", table.location, *options])
        assert ended.value.code == 0
        told = capsys.readouterr()
        assert says in told.out + told.err
