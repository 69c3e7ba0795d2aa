"""Starts the Python processes of Spark's tasks, in which the first attempt of a task is lost after it has written a file."""

import os
from pathlib import Path

import pyspark.daemon
from pyspark import TaskContext

from delvec.dv_files import VectorFile
from delvec.engines.change_files import ChangeFileWriter
from delvec.engines.parquet_writer import DataFileWriter
from delvec.engines.spark import task_rows


def losing(kind, name):
    """Let a method's first attempt in each task fail when it is done."""
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
    # Few new rows would be sent to the driver, which runs no task twice.
    task_rows._MOST_OF_A_TASK = 0
    pyspark.daemon.manager()
