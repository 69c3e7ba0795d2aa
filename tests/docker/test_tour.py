"""The tour of `docker compose`, without Docker: its settings, its images, and its notebook."""

import json
import re
from pathlib import Path

import yaml
from tests.support.served import served

from delvec_service.config import Settings

ROOT = Path(__file__).resolve().parents[2]
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
CLIENT = {"DELVEC_URL", "DELVEC_TOKEN"}
NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def test_variables_of_the_tour_are_settings():
    settings = {f"DELVEC_{name.upper()}" for name in Settings.model_fields}
    given = {
        name
        for each in SERVICES.values()
        for name in each.get("environment", {})
        if name.startswith("DELVEC_")
    }
    assert given
    assert given <= settings | CLIENT


def test_each_image_of_others_has_a_version():
    images = {each["image"] for each in SERVICES.values()} - {"delvec"}
    assert not [image for image in images if not re.search(r":v?\d", image)]


def test_the_notebook_runs(tmp_path, monkeypatch):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs")]
    names = {}
    with served(tmp_path, "tour") as url:
        monkeypatch.setenv("DELVEC_URL", url)
        monkeypatch.setenv("DELVEC_TOKEN", "tour")
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert names["deleted"]["numDeletedRows"] == 334
