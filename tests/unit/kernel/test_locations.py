import os
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delvec_errors import CorruptLog, InvalidLocation, LocationNotAllowed
from delvec_kernel import locations
from delvec_storage.roots import Roots

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        ("/data/people", "file:///data/people"),
        ("/data/people/", "file:///data/people"),
        ("//data//./people", "file:///data/people"),
        ("file:/data/people", "file:///data/people"),
        ("file:///data/people/", "file:///data/people"),
        ("file://localhost/data/people", "file:///data/people"),
        ("FILE:///data/people", "file:///data/people"),
        ("/data/a b", "file:///data/a%20b"),
        ("/data/a b ", "file:///data/a%20b%20"),
        ("file:///data/a b", "file:///data/a%20b"),
        ("file:///data/a%20b", "file:///data/a%20b"),
        ("/data/a%20b", "file:///data/a%2520b"),
        ("/data/100%", "file:///data/100%25"),
        ("/data/x+y=[1]?#:", "file:///data/x+y=%5B1%5D%3F%23%3A"),
        ("/data/é", "file:///data/%C3%A9"),
        ("file:///data/é", "file:///data/%C3%A9"),
        ("file:///data/%c3%a9", "file:///data/%C3%A9"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("s3n://bucket/a//b", "s3://bucket/a/b"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("az://container/x", "az://container/x"),
        ("abfs://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("memory:///x", "memory:///x"),
        ("memory:/x", "memory:///x"),
        ("/", "file://"),
        ("file:///", "file://"),
    ],
)
def test_locations_are_canonicalized(given_as, expected):
    assert locations.canonical(given_as) == expected
    assert locations.canonical(expected) == expected


@pytest.mark.parametrize(
    "location",
    [
        "",
        " ",
        "data/people",
        "./people",
        "file:people",
        "file://server/share",
        "memory:people",
        "s3:/bucket/x",
        "s3:///x",
        "ftp://host/x",
        "C:/data",
        "/data/../etc",
        "/data/..",
        "file:///data/%2E%2e/etc",
        "s3://bucket/a%2Fb",
        "s3://bucket/a%2fb",
        "s3://bucket/a?versionId=1",
        "s3://bucket/a#b",
        "file:///data/%FF",
        "/data/a\0b",
        "file:///data/%00",
        "/data/\udcff",
        "s3://key:secret@bucket/x",
        "abfss://account.dfs.core.windows.net:443/x",
        "abfss://c@account.dfs.core.windows.net:443/x",
        "abfss://c@account.dfs.core.windows.net?/x",
        "abfss://c@account.dfs.core.windows.net#/x",
        "abfss://c@account.dfs.core.windows.net\\@other/x",
        "abfss://c@account.dfs.core.windows.net@other/x",
        "abfss://c%2Fd@account.dfs.core.windows.net/x",
        "abfss://c d@account.dfs.core.windows.net/x",
        "abfss://@account.dfs.core.windows.net/x",
        "abfss://c@/x",
        "abfss://c@account.dfs.core.windows.net/a/../b",
        "abfss://c@account.dfs.core.windows.net/a/%2e%2E/b",
        "abfss://c@account.dfs.core.windows.net/a%2Fb",
        "az://c@account/x",
    ],
)
def test_invalid_locations_are_refused(location):
    with pytest.raises(InvalidLocation):
        locations.canonical(location)


def test_a_refused_location_does_not_repeat_a_password():
    for location in ("s3://key:secret@bucket/x", "https://user:secret@host/x"):
        with pytest.raises(InvalidLocation) as caught:
            locations.canonical(location)
        assert "secret" not in str(caught.value.to_wire())


@settings(deadline=None)
@given(st.lists(names, min_size=1, max_size=4))
def test_local_paths_round_trip(parts):
    path = "/" + "/".join(parts)
    url = locations.canonical(path)
    assert locations.local_path(url) == Path(path)
    assert url.isascii()
    assert locations.canonical(url) == url


def test_relative_paths_are_made_absolute_by_the_client_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locations.absolute("a/../people") == str(tmp_path / "people")
    assert locations.absolute("~/people") == os.path.expanduser("~/people")  # noqa: PTH111
    assert locations.absolute("s3://bucket/x") == "s3://bucket/x"


def test_other_storage_has_no_local_path():
    assert locations.local_path("s3://bucket/x") is None
    assert locations.local_path("memory:///x") is None
    assert locations.local_path("file://") == Path("/")


@pytest.mark.parametrize(
    ("log_path", "expected"),
    [
        ("part-0.parquet", "file:///data/people/part-0.parquet"),
        ("a%20b.parquet", "file:///data/people/a%20b.parquet"),
        ("a b.parquet", "file:///data/people/a%20b.parquet"),
        ("part=a%253Ab/x.parquet", "file:///data/people/part=a%253Ab/x.parquet"),
        ("é=[1]/x?#.parquet", "file:///data/people/%C3%A9=%5B1%5D/x%3F%23.parquet"),
        ("./x.parquet", "file:///data/people/x.parquet"),
        ("a:b.parquet", "file:///data/people/a%3Ab.parquet"),
        ("..x/...y", "file:///data/people/..x/...y"),
        ("/other/x%20y.parquet", "file:///other/x%20y.parquet"),
        ("file:/other/x.parquet", "file:///other/x.parquet"),
        ("file:///other/x.parquet", "file:///other/x.parquet"),
        ("s3a://bucket/x.parquet", "s3://bucket/x.parquet"),
    ],
)
def test_paths_in_the_log_are_url_encoded(log_path, expected):
    assert locations.resolve("file:///data/people", log_path) == expected


def test_an_absolute_path_belongs_to_the_storage_of_the_table():
    assert locations.resolve("s3://bucket/t", "/other/x.parquet") == "s3://bucket/other/x.parquet"
    assert locations.resolve("memory:///t", "/other/x.parquet") == "memory:///other/x.parquet"


@pytest.mark.parametrize(
    "log_path",
    [
        "../x",
        "a/../../x",
        "a/..",
        "%2E%2E/x",
        "..%2Fx",
        "a%2fb",
        "a%00",
        "%FF",
    ],
)
def test_a_log_cannot_lead_out_of_its_table(log_path):
    with pytest.raises(LocationNotAllowed) as caught:
        locations.resolve("file:///data/people", log_path)
    assert caught.value.details["file"] == log_path
    with pytest.raises(LocationNotAllowed):
        locations.canonical_log_path(log_path, "file:///data/people")


@pytest.mark.parametrize(
    "log_path",
    [
        "/data/people/../x",
        "file:///data/people/%2e%2e/x",
        "file://host/x",
        "hdfs://host/x",
        "s3:///x",
        "/a%2Fb",
    ],
)
def test_an_absolute_path_in_a_log_obeys_the_rules_of_locations(log_path):
    with pytest.raises(InvalidLocation) as caught:
        locations.resolve("file:///data/people", log_path)
    assert caught.value.details["file"] == log_path


@pytest.mark.parametrize("log_path", ["", ".", "./", "a\0b"])
def test_invalid_paths_are_a_corrupt_log(log_path):
    with pytest.raises(CorruptLog):
        locations.resolve("file:///data/people", log_path)


@settings(deadline=None)
@given(st.lists(names, min_size=1, max_size=4))
def test_a_file_of_the_table_is_found_by_the_path_that_delvec_writes(parts):
    location = "file:///data/people"
    url = locations.canonical("/data/people/" + "/".join(parts))
    in_log = locations.relative_to(location, url)
    assert ":" not in in_log
    assert locations.resolve(location, in_log) == url
    assert locations.canonical_log_path(in_log, location) == in_log


@settings(deadline=None)
@given(st.lists(names, min_size=1, max_size=4), st.sampled_from(["", "file:", "file://"]))
def test_all_spellings_of_a_file_have_one_key(parts, prefix):
    location = "file:///data/people"
    encoded = "/".join(quote(part, safe="") for part in parts)
    key = locations.canonical_log_path(encoded, location)
    assert locations.canonical_log_path(f"{prefix}/data/people/{encoded}", location) == key
    assert locations.canonical_log_path(locations.relative_to(location, f"{location}/{key}"), location) == key


def test_files_outside_the_table_keep_a_url_as_key():
    keys = {
        locations.canonical_log_path(path, "file:///data/people")
        for path in ("/data/people2/x", "file:/data/people2/x", "file:///data/people2/x")
    }
    assert keys == {"file:///data/people2/x"}


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), names), max_size=8))
def test_keys_of_a_column_are_those_of_its_values(values):
    location = "file:///data/people"
    paths = [None if value is None else quote(value, safe="=") for value in values]
    expected = [None if path is None else locations.canonical_log_path(path, location) for path in paths]
    for array in (
        pa.array(paths, pa.string()),
        pa.array(paths, pa.large_string()),
        pa.chunked_array([pa.array(paths, pa.string())]),
    ):
        assert locations.canonical_log_paths(array, location).to_pylist() == expected


@settings(deadline=None)
@given(st.from_regex(locations._CANONICAL_RELATIVE, fullmatch=True))
def test_the_fast_path_gives_the_same_keys(text):
    assert locations.resolve("memory:///t", "./" + text) == f"memory:///t/{text}"
    assert locations.resolve("memory:///t", text) == f"memory:///t/{text}"


def test_within_compares_whole_path_segments():
    assert locations.within("file:///data/people", "file:///data/people")
    assert locations.within("file:///data/people/x", "file:///data/people")
    assert not locations.within("file:///data/people2", "file:///data/people")
    assert not locations.within("file:///data", "file:///data/people")
    assert not locations.within("s3://bucket2", "s3://bucket")
    assert locations.within("file:///data", locations.canonical("/"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/d/a b%[.parquet", "file:/d/a%20b%25%5B.parquet"),
        ("/d/é+=,(x)&;$@!*'~.parquet", "file:/d/é+=,(x)&;$@!*'~.parquet"),
        ("/d/k:=1", "file:/d/k:=1"),
        ('/d/"#?<>\\^`{|}]', "file:/d/%22%23%3F%3C%3E%5C%5E%60%7B%7C%7D%5D"),
        ("/d/日本😀", "file:/d/日本😀"),
        ("/d/\x7f\x80\xa0\xad", "file:/d/%7F%C2%80%C2%A0\xad"),
        ("/d/\u2003\u2028\u202f\u3000\u200b", "file:/d/%E2%80%83%E2%80%A8%E2%80%AF%E3%80%80\u200b"),
        ("/d/a%20b", "file:/d/a%2520b"),
    ],
)
def test_file_paths_are_encoded_as_in_spark(path, expected):
    # What Spark 4.1 returned for files with these names, listed or in a manifest.
    assert locations.spark_file_path(locations.canonical(path)) == expected


def test_the_authority_is_kept_for_spark():
    assert locations.spark_file_path("s3a://bucket/a%20b/%C3%A9") == "s3a://bucket/a%20b/é"
    assert locations.spark_file_path("s3a://bucket") == "s3a://bucket"


@pytest.mark.parametrize(
    ("relative", "expected"),
    [
        ("part-0.parquet", "part-0.parquet"),
        ("day=a b/x.parquet", "day=a%20b/x.parquet"),
        ("day=%é/𠜎.parquet", "day=%25é/𠜎.parquet"),
        ("day=1%3A2/[x]#?.parquet", "day=1%253A2/%5Bx%5D%23%3F.parquet"),
        ("\u2028\u00a0\x01.parquet", "%E2%80%A8%C2%A0%01.parquet"),
        ("a:b.parquet", "a%3Ab.parquet"),
    ],
)
def test_writers_spell_paths_as_delta_sparks_vacuum_does(relative, expected):
    """VACUUM compares texts: a live file in another spelling would be deleted."""
    assert locations.log_path(relative) == expected
    assert locations.canonical_log_path(expected, "file:///data/t") == locations.canonical_relative(relative)


@pytest.mark.parametrize(
    "path",
    [
        "abfss://c@other.dfs.core.windows.net/lake/secret",
        "abfss://other@account.dfs.core.windows.net/lake/secret",
        "abfss://c@account.dfs.core.windows.net/lakes/secret",
        "abfss://c@account.dfs.core.windows.net.evil.example/lake/secret",
        "az://c/lake/secret",
        "/lakes/secret",
        "//c@other.dfs.core.windows.net/lake/secret",
    ],
)
def test_another_account_or_container_of_azure_is_outside(path):
    lake = "abfss://c@account.dfs.core.windows.net/lake"
    assert not Roots([lake]).allows(locations.resolve(f"{lake}/t", path))


def test_a_path_in_a_log_stays_in_the_container_of_azure():
    lake = "abfss://c@account.dfs.core.windows.net/lake"
    for path in ("../secret", "%2E%2E/secret", "a/../../secret", "a%2F..%2Fsecret", "..%5Csecret/../.."):
        with pytest.raises(LocationNotAllowed):
            locations.resolve(f"{lake}/t", path)
