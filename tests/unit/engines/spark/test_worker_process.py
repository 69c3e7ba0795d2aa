"""Effects of tasks on their worker process."""

import importlib
import sys
import zipfile
from zipimport import zipimporter

from delvec_engines.spark.row_sets import drop_zip_importers


def test_archives_are_forgotten_and_found_again(tmp_path, monkeypatch):
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("first_in_archive.py", "x = 1")
        made.writestr("second_in_archive.py", "x = 2")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("first_in_archive")
    assert isinstance(sys.path_importer_cache[str(archive)], zipimporter)

    drop_zip_importers()

    assert not any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    assert importlib.import_module("second_in_archive").x == 2
