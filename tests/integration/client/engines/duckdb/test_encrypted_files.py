"""Encrypted Parquet files, as a whole or by column: refused by name, and rows that need no decryption are read."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption
from tests.integration.engines.conftest import DataFile, TableWriter

import delvec
from delvec_errors import UnsupportedTable

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
KEY = "0123456789abcdef"


class Keys(encryption.KmsClient):
    """Wraps no key."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return key

    def unwrap_key(self, key, _):
        return key


def write_encrypted(path, columns, *, plaintext_footer):
    given = {"column_keys": {KEY: columns}} if columns else {"uniform_encryption": True}
    settings = encryption.EncryptionConfiguration(
        footer_key=KEY, plaintext_footer=plaintext_footer, double_wrapping=False, **given
    )
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), settings
    )
    with pq.ParquetWriter(path, SCHEMA, encryption_properties=properties) as writer:
        writer.write_table(pa.table({"id": [1, 2, 3], "s": ["a", "b", None]}, SCHEMA))


@pytest.fixture
def encrypted(tmp_path):
    """Return a function that makes a table of two files, of which ``secret.parquet`` is encrypted."""
    with delvec.connect(database_url="sqlite://") as lake:

        def make(columns=(), *, plaintext_footer):
            (tmp_path / "t").mkdir()
            write_encrypted(tmp_path / "t" / "secret.parquet", columns, plaintext_footer=plaintext_footer)
            files = [
                DataFile(None, name="secret.parquet", stats={"numRecords": 3}),
                DataFile(pa.table({"id": [4], "s": ["d"]}, SCHEMA), name="open.parquet"),
            ]
            properties = {"delta.enableDeletionVectors": "true"}
            return lake.table(
                TableWriter(tmp_path)("t", SCHEMA, files, properties=properties, features=["deletionVectors"])
            )

        yield make


def check_refused(table, commands):
    for command in commands:
        with pytest.raises(UnsupportedTable, match=r"'secret\.parquet'.* is encrypted") as caught:
            command(table)
        assert caught.value.details["file"] == "secret.parquet"
    assert table.version() == 0


COMMANDS = (
    lambda table: table.to_arrow(),
    lambda table: table.to_arrow(predicate="s = 'a'"),
    lambda table: table.delete("s = 'a'"),
    lambda table: table.update({"s": "upper(s)"}, "id = 1"),
    lambda table: (
        table.merge(pa.table({"s": ["a"]}), "t.s = n.s", source_alias="n", target_alias="t")
        .when_matched_delete()
        .execute()
    ),
    lambda table: table.optimize(rewrite="always"),
    lambda table: table.optimize.z_order(["s"]),
)


def test_an_encrypted_file_is_refused_by_name(encrypted):
    check_refused(encrypted(plaintext_footer=False), COMMANDS)


def test_an_encrypted_column_is_refused_by_the_name_of_the_file(encrypted):
    """DuckDB's error names no file, and is not the condition's."""
    check_refused(encrypted(["s"], plaintext_footer=True), COMMANDS)


def test_columns_that_are_not_encrypted_are_read(encrypted):
    table = encrypted(["s"], plaintext_footer=True)
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [1, 2, 3, 4]
    table.delete("id = 2")
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [1, 3, 4]
