"""The numbers of a table's health, each declared once.

From a field here follow the answers of the service, the column of a sample in the database, Prometheus' gauge, what the
dashboard shows, and the row in ``docs/health.md``. ``delvec_service.maintenance.health_report.examine`` computes the value. A
field of :class:`SampledMetrics` needs a migration, too.

Tested in `tests/unit/contract/test_health_metrics.py`.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from delvec_contract.shapes import Answer

__all__ = ["FileMetrics", "HealthOrder", "Metric", "SampledMetrics", "Spot", "metrics_of"]

Unit: TypeAlias = Literal["", "bytes", "percent", "score", "seconds"]

HealthOrder: TypeAlias = Literal[
    "score",
    "deleted-ratio",
    "deleted-bytes",
    "small-files",
    "num-files",
    "size-in-bytes",
    "commits-since-checkpoint",
    "gain-bytes",
    "scan-debt-seconds",
]
"""The numbers of samples by which tables can be listed."""

VECTORS: Final = "vectors"
FILES: Final = "files"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the dashboard shows a number.

    Attributes:
        group: the section of the page, or the title of the plot.
        label: the name there.
        place: the order in the section, or of all plots.
    """

    group: str
    label: str
    place: int


@dataclass(frozen=True, slots=True)
class Metric:
    """How a number is called and shown; an annotation of its field.

    Attributes:
        label: the short name, for lists.
        unit: empty for a count; a ``percent`` is a share between 0 and 1.
        gauge: Prometheus' name after ``delvec_table_``, and help text; None if it is not exported.
        row: where the page of a table lists it, if in a row of its own.
        plot: where it is plotted over time; only numbers of samples are.
    """

    label: str
    unit: Unit = ""
    gauge: tuple[str, str] | None = None
    row: Spot | None = None
    plot: Spot | None = None


class SampledMetrics(Answer):
    """The numbers of a version that are also sampled: listed for all tables, and over time."""

    num_files: Annotated[
        int,
        Metric(
            "Files",
            gauge=("files", "Live data files."),
            row=Spot(FILES, "Files", 10),
            plot=Spot("Files", "all", 30),
        ),
    ] = Field(description="The number of live data files.")
    size_in_bytes: Annotated[
        int,
        Metric(
            "Size",
            "bytes",
            gauge=("size_bytes", "Bytes of live data files."),
            row=Spot(FILES, "Size", 20),
            plot=Spot("Size", "all", 40),
        ),
    ] = Field(description="The size of the live data files in bytes.")
    num_physical_rows: Annotated[int | None, Metric("Rows")] = Field(
        description="The number of rows in data files, deleted ones included; absent if a file has no statistics."
    )
    num_deleted_rows: Annotated[
        int, Metric("Deleted rows", gauge=("deleted_rows", "Rows deleted by deletion vectors."))
    ] = Field(description="The number of rows that deletion vectors mark.")
    deleted_ratio: Annotated[
        float | None,
        Metric(
            "Deleted share",
            "percent",
            gauge=("deleted_ratio", "Share of rows deleted by deletion vectors."),
            plot=Spot("Share of deleted rows", "share", 20),
        ),
    ] = Field(description="The share of rows that deletion vectors mark: deleted rows divided by all rows.")
    deleted_bytes: Annotated[int, Metric("Deleted bytes", "bytes", plot=Spot("Size", "deleted", 41))] = Field(
        description="The estimated bytes of deleted rows in data files: their share of each file."
    )
    num_files_with_deletion_vectors: Annotated[
        int,
        Metric(
            "Files with a deletion vector",
            gauge=("deletion_vectors", "Live data files with a deletion vector."),
            row=Spot(VECTORS, "Files with a deletion vector", 10),
            plot=Spot("Files", "with deletion vectors", 32),
        ),
    ] = Field(description="The number of live files with a deletion vector.")
    small_files: Annotated[
        int,
        Metric(
            "Small files",
            gauge=("small_files", "Files that OPTIMIZE would rewrite."),
            row=Spot(FILES, "Small files (under 16 MiB)", 40),
            plot=Spot("Files", "small", 31),
        ),
    ] = Field(description="Files under 16 MiB.")
    commits_since_checkpoint: Annotated[
        int,
        Metric(
            "Commits since checkpoint",
            gauge=("commits_since_checkpoint", "Versions since the newest checkpoint."),
            plot=Spot("Commits since checkpoint", "commits", 50),
        ),
    ] = Field(description="The number of versions since the newest checkpoint.")
    scan_debt_seconds: Annotated[
        float | None,
        Metric(
            "Scan debt",
            "seconds",
            gauge=("scan_debt_seconds", "Seconds that a full scan by one reader wastes, estimated."),
            row=Spot(FILES, "Scan debt", 50),
            plot=Spot("Scan debt", "seconds", 60),
        ),
    ] = Field(
        description="Estimated seconds that a full scan by one reader wastes: deleted bytes at 100 MB a second, and "
        "50 ms for each file that maintenance would save it; absent in samples of older versions of Delvec."
    )


class FileMetrics(SampledMetrics):
    """The numbers of one version's files."""

    read_amplification: Annotated[float | None, Metric("Read amplification")] = Field(
        description="Bytes that a full scan reads, divided by the bytes of live rows; absent if no row is live."
    )
    num_deletion_vector_files: Annotated[
        int, Metric("Deletion vector files", row=Spot(VECTORS, "Deletion vector files", 20))
    ] = Field(description="The number of files that hold deletion vectors.")
    live_deletion_vector_bytes: Annotated[
        int, Metric("Live vector bytes", "bytes", row=Spot(VECTORS, "Live bytes in them", 30))
    ] = Field(description="The bytes of the deletion vectors of live files.")
    dead_deletion_vector_bytes: Annotated[
        int | None, Metric("Dead vector bytes", "bytes", row=Spot(VECTORS, "Dead bytes in them", 40))
    ] = Field(
        description="Bytes of replaced deletion vectors in files that also hold live ones, as far as known from "
        "tombstones; absent if these cannot be read."
    )
    num_removed_files: Annotated[int | None, Metric("Removed files")] = Field(
        description="Removed data files that the log still has; absent if tombstones cannot be read."
    )
    removed_bytes: Annotated[int | None, Metric("Removed bytes", "bytes")] = Field(
        description="Bytes of these files, as far as known from the log; absent if tombstones cannot be read."
    )
    median_file_size: Annotated[
        int | None, Metric("Median size", "bytes", row=Spot(FILES, "Median size", 30))
    ] = Field(description="The median size of the live data files in bytes.")


def metrics_of(shape: type[Answer]) -> dict[str, Metric]:
    """Return the declared numbers of a shape, by field name."""
    return {
        name: each
        for name, field in shape.model_fields.items()
        for each in field.metadata
        if isinstance(each, Metric)
    }
