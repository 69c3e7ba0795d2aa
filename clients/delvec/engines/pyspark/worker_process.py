"""What tasks do for the Python process that runs them, which runs other tasks afterwards."""

import sys
from zipimport import zipimporter

__all__ = ["forget_archives"]


def forget_archives() -> None:
    """Drop what the import system remembers of ZIP archives; it is found again when it is needed.

    Before each task Spark invalidates the import system's caches. Until Python 3.13 every importer of an archive then
    reads its directory anew, and PySpark comes as an archive with an importer for each of its packages: a tenth of a
    second and more for each task, in a process that has nothing to import.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
