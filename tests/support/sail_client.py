"""Runs Sail in a process of its own, with a Unity Catalog as its default catalog.

Run as a program with ``python sail_client.py URL TOKEN FOLDER`` it executes the statements of standard input, a JSON list, and
prints for each its rows, or its error as a string.
"""

import json
import os
import subprocess
import sys

VERSION = "0.7.2"
_PACKAGES = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard", "protobuf")


def packages():
    """Return a folder with Sail and what its client needs, installed once; benchmarks use it, too."""
    # Here: as a program this module is alone.
    from tests.support.packages import installed

    return installed("sail", f"pysail=={VERSION}", *_PACKAGES)


def run(statements, url, token):
    """Return what each statement returned: rows, or its error as a string."""
    command = [sys.executable, __file__, url, token, packages()]
    done = subprocess.run(
        command, input=json.dumps(statements), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def main(url, token, folder):
    lake = f'{{type="unity", name="lake", uri="{url}/api/2.1/unity-catalog", default_catalog="delvec", token="{token}"}}'
    os.environ |= {
        "SAIL_CATALOG__LIST": f"[{lake}]",
        "SAIL_CATALOG__DEFAULT_CATALOG": "lake",
        "SAIL_CATALOG__DEFAULT_DATABASE": '["sales"]',
        "UNITY_ALLOW_HTTP_URL": "true",
    }
    sys.path.append(folder)  # at the end: everything else comes from the environment
    from pysail.spark import SparkConnectServer
    from pyspark.sql.connect.session import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    answers = []
    for statement in json.load(sys.stdin):
        try:
            answers.append([row.asDict(recursive=True) for row in spark.sql(statement).collect()])
        except Exception as error:  # noqa: BLE001 - the test decides
            answers.append(str(error))
    print(json.dumps(answers))  # noqa: T201 - the answer
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
