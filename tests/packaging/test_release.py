"""What `make release` builds, besides the wheel."""

import hashlib
import importlib
import re
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def release(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "dev"), *sys.path])
    return importlib.import_module("release")


def test_project_chart_and_changelog_have_one_version(release):
    version = release.project_version()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert first in (version, "Unreleased")


def test_the_notes_are_those_of_the_version(release):
    text = release.notes(release.project_version())
    assert text.startswith("### ")
    assert "\n## " not in text
    with pytest.raises(SystemExit, match="no section"):
        release.notes("99.0.0")


def test_the_bill_of_materials_lists_what_is_locked(release):
    lock = release.LOCK.read_text()
    bill = release.sbom("1.2.3", lock)

    locked = re.findall(r"^([\w.\-]+)==(\S+)", lock, re.MULTILINE)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert [(each["name"], each["version"]) for each in bill["components"]] == [
        (name.lower().replace("_", "-").replace(".", "-"), version) for name, version in locked
    ]
    hashes = [
        one["content"] for each in bill["components"] for one in each["externalReferences"][0]["hashes"]
    ]
    assert hashes == re.findall(r"sha256:(\w+)", lock)
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references)
    assert bill["dependencies"] == [{"ref": "pkg:pypi/delvec@1.2.3", "dependsOn": references}]
    assert bill == release.sbom("1.2.3", lock)


def test_the_chart_is_an_archive_as_helm_reads_it(release, tmp_path):
    one, two = tmp_path / "one.tgz", tmp_path / "two.tgz"
    release.chart_archive(one)
    release.chart_archive(two)
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        names = archive.getnames()
        chart = yaml.safe_load(archive.extractfile("delvec/Chart.yaml").read())
    assert {
        "delvec/values.yaml",
        "delvec/templates/deployment.yaml",
        "delvec/files/dashboards/delvec.json",
    } <= {*names}
    assert chart["version"] == chart["appVersion"] == release.project_version()


def test_checksums_are_of_all_files_but_their_own(release, tmp_path):
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "SHA256SUMS").write_text("old")
    assert release.checksums(tmp_path) == "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in (("a", b"1"), ("b", b"2"))
    )
