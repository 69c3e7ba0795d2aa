"""Every kind of path that logs may contain, before and after the table is moved or copied."""

import shutil
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.log_by_hand import LogByHand, add, remove

ODD = ("plain.parquet", "a b+c=é%.parquet", "p=1/x.parquet", "co:lon.parquet")


def spellings(folder, name):
    """Return the forms of path that the log of the table in ``folder`` may have for a file."""
    relative = quote(name, safe="/=+")
    absolute = quote(f"{folder}/{name}", safe="/=+")
    return {
        "relative": relative,
        "file:///": f"file://{absolute}",
        "file:/": f"file:{absolute}",
        "path": absolute,
    }


def table(folder, spelling):
    log = LogByHand(folder)
    adds = []
    for number, name in enumerate(ODD):
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), folder / name)
        adds.append(add(spellings(folder, name)[spelling], size=(folder / name).stat().st_size))
    log.commit(1, *adds)
    return log


def planned(client, folder):
    created = client.post("/v1/tables", json={"location": str(folder)})
    assert created.status_code < 300, created.text
    return client.post(f"/v1/tables/{created.json()['name']}/plan", json={})


@pytest.mark.parametrize("spelling", ["relative", "file:///", "file:/", "path"])
def test_a_table_in_its_place(client, tmp_path, spelling):
    table(tmp_path / "old place", spelling)
    answer = planned(client, tmp_path / "old place")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["files"]) == len(ODD)


@pytest.mark.parametrize("copied", [True, False])
def test_relative_paths_go_along(client, tmp_path, copied):
    table(tmp_path / "old", "relative")
    (shutil.copytree if copied else shutil.move)(tmp_path / "old", tmp_path / "new")
    answer = planned(client, tmp_path / "new")
    assert len(answer.json()["files"]) == len(ODD)


@pytest.mark.parametrize("spelling", ["file:///", "file:/", "path"])
def test_absolute_paths_point_to_the_old_place(running, tmp_path, error, spelling):
    (tmp_path / "inside").mkdir()
    table(tmp_path / "old", spelling)
    shutil.copytree(tmp_path / "old", tmp_path / "inside" / "new")
    with running(roots=(str(tmp_path / "inside"),)) as client:
        found = error(planned(client, tmp_path / "inside" / "new"))
    assert found["type"] == "LocationNotAllowed"
    assert "moved or copied" in found["message"]
    assert found["details"]["file"].startswith(f"file://{tmp_path}/old/")
    with running(roots=(str(tmp_path),)) as client:
        answer = planned(client, tmp_path / "inside" / "new")
        assert len(answer.json()["files"]) == len(ODD)


def test_a_file_is_removed_under_any_spelling(tmp_path):
    folder = tmp_path / "t"
    log = table(folder, "relative")
    names = [spellings(folder, name) for name in ODD]
    log.commit(2, remove(names[0]["file:/"]), remove(names[1]["path"]), remove(names[2]["file:///"]))
    assert list(log.files()) == [names[3]["relative"]]


def test_a_bucket_has_one_name_however_its_scheme_is_spelled(tmp_path):
    log = LogByHand(tmp_path / "t")
    log.commit(1, add("s3://bucket/a.parquet"), add("s3a://bucket/b.parquet"))
    log.commit(2, remove("s3n://bucket/a.parquet"), remove("s3://bucket/b.parquet"), add("c.parquet"))
    assert list(log.files()) == ["c.parquet"]
