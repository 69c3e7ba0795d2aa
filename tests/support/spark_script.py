"""Test programs that start a separate Spark, since one process can have only one kind of session."""

import os
import subprocess
import sys

_UNWANTED = ("SPARK_REMOTE", "DELVEC_URL", "DELVEC_TOKEN", "DELVEC_DATABASE_URL")


def run(script, *arguments, folder, timeout, cwd=None, **environment):
    """Run a program and check that it ends with the words "all is well".

    Args:
        script: its path.
        arguments: of the program.
        folder: for its state.
        timeout: in seconds.
        cwd: its working directory.
        environment: variables in addition to this process's, without those that configure a service.
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
