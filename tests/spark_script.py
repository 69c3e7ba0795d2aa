"""Programs of tests that start a Spark of their own: one process has one kind of session."""

import os
import subprocess
import sys

_UNWANTED = ("SPARK_REMOTE", "DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL")


def run(script, *arguments, folder, timeout, cwd=None, **environment):
    """Run a program, and expect that it ends with the words "all is well".

    Args:
        script: its path.
        arguments: of the program.
        folder: for its state.
        timeout: in seconds.
        cwd: where it runs.
        environment: variables besides this process's, of which those that name a service are left out.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in _UNWANTED}
    own = {"XDG_STATE_HOME": str(folder / "state"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=inherited | own | environment,
        check=False,
    )
    assert "all is well" in done.stdout, done.stderr[-4000:]
