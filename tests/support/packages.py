"""Packages that tests install beside the environment, whose locked versions they would contradict."""

import subprocess
import sys
from pathlib import Path

_BUILD = Path(__file__).parents[2] / ".build"


class NotInstalledError(Exception):
    """The packages cannot be installed on this machine; the text is the reason."""


def installed(name, *wanted):
    """Return a folder with these packages, without what they depend on, installed once."""
    folder = _BUILD / name
    if not folder.exists():
        part = folder.with_name(f"{name}.part")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", part]
        done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalledError(done.stderr[-2000:])
        part.rename(folder)
    return folder
