"""Row group copies as jobs: what a process or task needs to copy a bin's files into one, and what runs them.

Tested in `tests/integration/engines/test_copy_plan.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from delvec_engines.data_file_names import data_file_path
from delvec_engines.scan import Scan
from delvec_errors import CorruptTable, DelvecError, StorageError
from delvec_parquet.parquet_file import read_footer
from delvec_parquet.row_group_copy import SourceFile
from delvec_storage import files as storage
from delvec_storage.roots import Roots
from delvec_storage.row_groups import copy_row_groups, read_footers

__all__ = ["CopiedFile", "CopyJob", "LocalCopier", "RowGroupCopier", "named_sizes", "outcome"]

_COPIES_AT_ONCE: Final = 4
_ADVICE: Final = "Nothing was committed; run `delvec check`, and optimize with rewrite='always'."


@dataclass(frozen=True)
class CopiedFile:
    """A new file.

    Attributes:
        path: the path as in the log.
        size: its size in bytes.
        modified: its modification time in milliseconds since the epoch.
    """

    path: str
    size: int
    modified: int


@dataclass(frozen=True)
class CopyJob:
    """A bin's files, to be copied into one; can be pickled for a task.

    Attributes:
        location: the table's canonical location.
        roots: where the files may be.
        sources: the files, in order.
        partition: their partition values by physical name, in the table's order.
        transaction_id: the id of the commit to come.
        number: the job's number within its transaction.
        codec: the codec in the new file's name.
    """

    location: str
    roots: Roots
    sources: Sequence[SourceFile]
    partition: Mapping[str, str | None]
    transaction_id: str
    number: int
    codec: str

    def run(self) -> CopiedFile:
        """Copy, and verify the stored file; a failed copy is deleted if storage allows it.

        Raises:
            CorruptTable: a source contradicts its footer.
            MissingDataFile: a source does not exist.
            StorageError: storage did not answer.
        """
        # Named here, because a rerun task must not write to the same path.
        path = data_file_path(
            self.partition, self.transaction_id, task=self.number, number=0, codec=self.codec
        )
        size = copy_row_groups(self.location, self.sources, path, is_allowed=self.roots.allows)
        try:
            return CopiedFile(path, size, self._check(path, size))
        except DelvecError:
            # Best effort: VACUUM removes a file that no commit refers to.
            with suppress(StorageError, OSError):
                storage.delete_file(self.location, path)
            raise

    def _check(self, path: str, size: int) -> int:
        """Check the new file's size and footer; return its modification time in milliseconds."""
        file_info = storage.stat(self.location, path)
        if file_info is None or file_info.size != size:
            raise StorageError(
                f"The file {path} was written with {size} bytes, which storage does not have; try again.",
                file=path,
            )
        try:
            with storage.open_input(self.location, path) as opened:
                footer = read_footer(opened, path)
        except (pa.ArrowException, OSError) as error:
            raise CorruptTable(f"The copy {path} cannot be read: {error}. {_ADVICE}", file=path) from error
        groups = sum(len(source.footer.row_groups) for source in self.sources)
        rows = sum(source.footer.num_rows for source in self.sources)
        if footer.num_rows != rows or footer.num_row_groups != groups:
            raise CorruptTable(f"The copy {path} does not have the rows of its files. {_ADVICE}", file=path)
        return file_info.last_modified_ms


def outcome(job: CopyJob) -> CopiedFile | DelvecError:
    """Run a job; return the new file, or the error."""
    try:
        return job.run()
    except DelvecError as error:
        return error


class RowGroupCopier(Protocol):
    """Reads footers and copies row groups, in this process or in a cluster's tasks."""

    def footers(self, scan: Scan) -> Sequence[SourceFile]:
        """Return the footers of a scan's files, in its order.

        Raises:
            MissingDataFile: a file does not exist.
            CorruptTable: a file is no Parquet file, or its footer is damaged.
            UnusableFile: a footer is larger than 256 MiB.
            StorageError: storage did not answer.
        """
        ...

    def copy(self, scan: Scan, jobs: Sequence[CopyJob]) -> Iterable[CopiedFile | DelvecError]:
        """Run the jobs, and yield each result in order: the new file, or the error.

        Args:
            scan: the files of all jobs.
            jobs: the jobs, in any order.
        """
        ...


class LocalCopier:
    """Copies in this process, four bins at a time."""

    def footers(self, scan: Scan) -> Sequence[SourceFile]:
        """Return the footers of a scan's files; see :class:`RowGroupCopier`."""
        return read_footers(scan.location, named_sizes(scan), is_allowed=scan.roots.allows)

    def copy(self, scan: Scan, jobs: Sequence[CopyJob]) -> Iterator[CopiedFile | DelvecError]:
        """Run the jobs; see :class:`RowGroupCopier`."""
        del scan
        with ThreadPoolExecutor(_COPIES_AT_ONCE, "delvec-copy") as pool:
            waiting = [pool.submit(outcome, job) for job in jobs]
            try:
                for each in waiting:
                    yield each.result()
            finally:
                for each in waiting:
                    each.cancel()


def named_sizes(scan: Scan) -> list[tuple[str, int]]:
    """Return the path and size of each of a scan's files, in order."""
    return list(zip(scan.files["path"].to_pylist(), scan.files["size"].to_pylist(), strict=True))
