"""Options of ``df.write.format("delvec")`` and ``df.writeStream.format("delvec")``.

Tested in `tests/integration/spark/test_spark_sink.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delvec_commands.dml.append import WriteOptions
from delvec_commands.dml.overwrite import Replacement
from delvec_errors import BadRequest, UnsupportedOperation

__all__ = ["NOT_IN_CATALOGS", "WriteRequest", "refuse_catalog"]

_FLAGS: Final = {"mergeschema": "merge_schema", "overwriteschema": "overwrite_schema"}
_TEXTS: Final = {
    "path": "path",
    "url": "url",
    "token": "token",
    "txnappid": "txn_app",
    "txnversion": "txn_version",
    "usermetadata": "user_metadata",
    "partitionoverwritemode": "partitions",
    "replacewhere": "replace_where",
    "partitionby": "partition_by",
}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options of a stream."""
_OPTION_NAMES: Final = (
    "path, url, token, mergeSchema, overwriteSchema, partitionBy, partitionOverwriteMode, replaceWhere, txnAppId, "
    "txnVersion, userMetadata"
)
_KNOWN_TO_STREAMS: Final = (
    "path, url, token, mergeSchema, overwriteSchema, partitionBy, txnAppId, userMetadata"
)


@dataclass(frozen=True)
class WriteRequest:
    """The parsed options of a write."""

    path: str
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    merge_schema: bool = False
    overwrite_schema: bool = False
    partitions: str = "static"
    partition_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    txn_app: str | None = None
    txn_version: str | None = None
    user_metadata: str | None = None

    @classmethod
    def of(
        cls, options: Mapping[str, str], *, overwrite: bool = True, streaming: bool = False
    ) -> "WriteRequest":
        """Parse options.

        Args:
            options: values by case-insensitive name.
            overwrite: ``mode("overwrite")``, or ``outputMode("complete")`` of a stream.
            streaming: whether this is a streaming write.

        Raises:
            BadRequest: an option is unknown, has an invalid value, or does not apply to the mode.
            UnsupportedOperation: the write is to a table in Spark's catalog.
        """
        refuse_catalog(options)
        values: dict[str, Any] = {}
        for key, value in options.items():
            name = key.lower()
            if name in _FLAGS:
                if value.strip().lower() not in ("true", "false"):
                    raise BadRequest(f"the option {key} must be true or false, not {value!r}")
                values[_FLAGS[name]] = value.strip().lower() == "true"
            elif name in _TEXTS:
                values[_TEXTS[name]] = value
            elif not (streaming and name in _OF_SPARK):
                known = _KNOWN_TO_STREAMS if streaming else _OPTION_NAMES
                raise BadRequest(f"format('delvec') has no write option '{key}'; its options are {known}")
        _check_together(values, streaming=streaming)
        if "partition_by" in values:
            names = (name.strip() for name in values["partition_by"].split(","))
            values["partition_by"] = tuple(name for name in names if name)
        values["partitions"] = values.get("partitions", "static").lower()
        request = cls(**values)
        request.replacement(overwrite=overwrite)
        return request

    def without_token(self) -> "WriteRequest":
        """Return the request without the token, for tasks."""
        return replace(self, token=None)

    def replacement(self, *, overwrite: bool) -> Replacement | None:
        """Return which rows to replace; None for an append.

        Raises:
            BadRequest: the options contradict the mode or each other.
        """
        if overwrite:
            found = Replacement(self.replace_where, self.partitions)  # type: ignore[arg-type]
            found.check(self.options)
            return found
        for name, value in (("overwriteSchema", self.overwrite_schema), ("replaceWhere", self.replace_where)):
            if value:
                raise BadRequest(f"{name} needs mode('overwrite')")
        return None

    @property
    def options(self) -> WriteOptions:
        """The options for commands; without ``txn`` of a stream, which differs per batch."""
        txn = (
            None
            if self.txn_version is None or self.txn_app is None
            else (self.txn_app, int(self.txn_version))
        )
        partition_by = self.partition_by if self.overwrite_schema else None
        return WriteOptions(self.merge_schema, self.overwrite_schema, partition_by, txn, self.user_metadata)


def _check_together(values: Mapping[str, str], *, streaming: bool) -> None:
    if "path" not in values:
        raise BadRequest(
            f"format('delvec') needs a table: .save('/path/to/table'), or its name in place of the path. {NOT_IN_CATALOGS}"
        )
    if streaming:
        for name, text in (
            ("txn_version", "txnVersion is set to the number of the batch"),
            ("replace_where", "replaceWhere works with df.write only"),
            ("partitions", "partitionOverwriteMode works with df.write only"),
        ):
            if name in values:
                raise BadRequest(
                    f"writing a stream with format('delvec'): {text}; leave it out, or use foreachBatch"
                )
        return
    if ("txn_app" in values) != ("txn_version" in values):
        raise BadRequest("txnAppId and txnVersion must be given together")
    if not values.get("txn_version", "0").strip().isdecimal():
        raise BadRequest(f"the option txnVersion must be a whole number, not {values['txn_version']!r}")


NOT_IN_CATALOGS: Final = (
    "A table of Spark's catalog cannot be USING delvec (CREATE TABLE, saveAsTable, insertInto, writeTo, toTable): "
    "Spark does not tell Python data sources which table is meant. Use CREATE TEMPORARY VIEW v USING delvec "
    "OPTIONS (path '/path/to/table') with SELECT and INSERT, the path itself, or "
    "delvec.spark.DeltaTable.forName(spark, name), which finds tables that saveAsTable made with the option path."
)
_PROPERTIES: Final = frozenset({"owner", "provider", "is_managed_location"})


def refuse_catalog(options: Iterable[str]) -> None:
    """Refuse reads and writes of tables in Spark's catalog, recognized by the catalog's table properties.

    Raises:
        UnsupportedOperation: the message says what to do instead.
    """
    if _PROPERTIES & {name.lower() for name in options}:
        raise UnsupportedOperation(NOT_IN_CATALOGS)
