"""The end of a Parquet file, read at once: it has the footer, and often the page indexes before it."""

from dataclasses import dataclass

from delvec_parquet.parquet_file import TRAILER_BYTES, footer_size

__all__ = ["FileEnd"]


@dataclass(frozen=True)
class FileEnd:
    """The last bytes of a file.

    Attributes:
        data: the bytes.
        size: the size of the whole file, in bytes.
    """

    data: bytes | memoryview
    size: int

    @property
    def start(self) -> int:
        """Where the bytes begin in the file."""
        return self.size - len(self.data)

    def get(self, start: int, end: int) -> bytes | None:
        """Return the bytes from ``start`` to ``end`` of the file; None if they begin before these."""
        return bytes(self.data[start - self.start : end - self.start]) if start >= self.start else None

    def footer_range(self, path: str) -> tuple[int, int] | None:
        """Return where the footer is in the file; None if the file is not Parquet.

        Args:
            path: the path, for errors.

        Raises:
            UnusableFile: the footer exceeds 256 MiB.
        """
        length = footer_size(bytes(self.data[-TRAILER_BYTES:]), self.size, path)
        end = self.size - TRAILER_BYTES
        return None if length is None else (end - length, end)
