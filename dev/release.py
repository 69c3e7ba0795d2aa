"""Builds what a release consists of into dist/: wheel, sdist, Helm chart, SBOM, notes and checksums.

    python dev/release.py [--outdir dist]

Nothing is uploaded. The version is that of pyproject.toml; the chart and the changelog must have it, too.
"""

import argparse
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "delvec"
LOCK = ROOT / "requirements-image.lock"
_LOCKED = re.compile(
    r"^(?P<name>[\w.\-]+)==(?P<version>[^\s\\;]+)[^\n\\]*(?P<rest>(?:\s*\\\n\s+--hash=\S+)*)", re.MULTILINE
)
_NAMESPACE = uuid.UUID("3f0e3c4e-6f4b-5c35-8a47-0f2a8ad1a6a1")


def project_version() -> str:
    """Return the version of pyproject.toml.

    Raises:
        SystemExit: the chart or the changelog has another one.
    """
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = (CHART / "Chart.yaml").read_text()
    for field in ("version", "appVersion"):
        if not re.search(rf'^{field}: "?{re.escape(version)}"?$', chart, re.MULTILINE):
            sys.exit(f"helm/delvec/Chart.yaml: {field} is not {version}, as in pyproject.toml")
    notes(version)
    return version


def notes(version: str) -> str:
    """Return the section of a version in the changelog.

    Raises:
        SystemExit: there is none.
    """
    changelog = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(rf"^## {re.escape(version)}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        sys.exit(f"CHANGELOG.md has no section '## {version}'")
    return section[1].strip() + "\n"


def sbom(version: str, lock: str) -> dict[str, object]:
    """Return the bill of materials of the container image and ``delvec[local,postgres,aws,traces]``: CycloneDX 1.6.

    Args:
        version: of Delvec.
        lock: the text of the lock file, with hashes.
    """
    own = f"pkg:pypi/delvec@{version}"
    components = [_component(each) for each in _LOCKED.finditer(lock)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, version + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "delvec",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _component(locked: re.Match[str]) -> dict[str, object]:
    name, version = re.sub(r"[-_.]+", "-", locked["name"]).lower(), locked["version"]
    purl = f"pkg:pypi/{name}@{version}"
    hashes = [
        {"alg": "SHA-256", "content": digest}
        for digest in re.findall("sha256:([0-9a-f]{64})", locked["rest"])
    ]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        # Of each distribution file of that version: which of them is installed depends on the platform.
        "externalReferences": [{"type": "distribution", "url": purl, "hashes": hashes}],
    }


def chart_archive(target: Path) -> None:
    """Write the chart's files that git knows as ``helm package`` does; the same files give the same bytes."""
    command = ["git", "ls-files", "-z", "--", str(CHART)]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in sorted(filter(None, listed.split("\0"))):
            content = (ROOT / name).read_bytes()
            entry = tarfile.TarInfo(f"delvec/{Path(name).relative_to('helm/delvec')}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    target.write_bytes(gzip.compress(archive.getvalue(), mtime=0))


def checksums(folder: Path) -> str:
    """Return the lines that ``sha256sum --check`` takes, for all files of a folder."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def main() -> None:
    """Build everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist", help="an empty or a new folder")
    out: Path = parser.parse_args().outdir
    version = project_version()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{out} is not empty: its checksums would cover what is not of this release (make clean)")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True)
    chart_archive(out / f"delvec-{version}.tgz")
    bill = json.dumps(sbom(version, LOCK.read_text()), indent=1)
    (out / f"delvec-{version}.cdx.json").write_text(bill + "\n")
    (out / f"delvec-{version}-notes.md").write_text(notes(version))
    (out / "SHA256SUMS").write_text(checksums(out))
    print(f"Release {version} is in {out}:\n{(out / 'SHA256SUMS').read_text()}", end="")


if __name__ == "__main__":
    main()
