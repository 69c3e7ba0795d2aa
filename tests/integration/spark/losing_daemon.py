"""Starts Spark's Python workers so that each task's first attempt is lost after it has written a file."""

import os
from pathlib import Path

import pyspark.daemon
from pyspark import TaskContext

from delvec_engines.change_files import ChangeFileWriter
from delvec_engines.dv_files import VectorFile
from delvec_engines.parquet_writer import DataFileWriter
from delvec_engines.spark import task_rows


def losing(kind, name):
    """Make a method fail at its end in each task's first attempt."""
    real = getattr(kind, name)

    def lost(self, *given):
        done = real(self, *given)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            with Path(os.environ["DELVEC_TEST_LOST_TASKS"]).open("a") as log:
                log.write(f"{kind.__name__}\n")
            raise RuntimeError("lost after it was written: it is a test")
        return done

    setattr(kind, name, lost)


if __name__ == "__main__":
    for kind, name in ((DataFileWriter, "finish"), (ChangeFileWriter, "finish"), (VectorFile, "write")):
        losing(kind, name)
    # A few new rows would go to the driver, where nothing is retried.
    task_rows._MAX_OF_A_TASK = 0
    pyspark.daemon.manager()
