"""One command in a process of its own, which tells at its end how much memory it had.

``python -m tests.integration.large.command '{"engine": "duckdb", "url": …, "table": …, "command": "delete", "arguments": {…}}'``
"""

import json
import sys
import time
from pathlib import Path

import delvec

__all__ = ["memory"]

_MAX_JAVA = "512m"


def memory(process="self"):
    """Return the most bytes that a process has had resident."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError(process)


def _spark(master):
    from pyspark.sql import SparkSession

    from delvec_engines.spark import SparkEngine

    session = (
        SparkSession.builder.master(master)
        .config("spark.driver.memory", _MAX_JAVA)
        .config("spark.executor.memory", "1g")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", "spark-warehouse")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return SparkEngine(session)


def _heap(session):
    """Return the most bytes that the driver's Java has had in use, by its own count: its garbage is among them."""
    pools = session._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    return sum(pool.getPeakUsage().getUsed() for pool in pools if pool.getType().name() == "HEAP")


def _main(job):
    engine = None if job["engine"] == "duckdb" else _spark(job["engine"])
    with delvec.connect(job["url"]) as lake:
        table = lake.table(job["table"], engine=engine)
        begun = time.perf_counter()
        metrics = getattr(table, job["command"])(**job["arguments"])
        seconds = time.perf_counter() - begun
        answer = {"metrics": metrics, "version": metrics.version, "seconds": seconds, "memory": memory()}
        if engine is not None:
            answer["heap"] = _heap(engine.spark)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
