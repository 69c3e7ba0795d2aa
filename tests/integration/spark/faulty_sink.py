"""Run by test_spark_task_writes: a stream into a table on flaky storage, with Spark's task retries enabled."""

import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from delvec.spark_datasource.sink_options import WriteRequest
from delvec.spark_datasource.source import DelvecSource
from delvec.spark_datasource.stream_sink import DelvecStreamWriter
from delvec_errors import StorageError
from delvec_storage import files as storage

_STAT = storage.stat


class FaultyWriter(DelvecStreamWriter):
    """Fails the first batch's first task a given number of times."""

    def write(self, iterator):
        folder, faults = Path(self._request.path).parent, int(self._request.user_metadata)
        context = TaskContext.get()
        log = folder / "faults"
        is_first = context.getLocalProperty("streaming.sql.batchId") == "0" and context.partitionId() == 0

        def stat(location, path):
            known = log.read_text().splitlines() if log.exists() else []
            if is_first and len(known) < faults:
                log.write_text("\n".join([*known, f"attempt {context.attemptNumber()}"]))
                raise StorageError(f"Cannot look up {path}: it is a test; try again.")
            return _STAT(location, path)

        storage.stat = stat
        try:
            return super().write(iterator)
        finally:
            storage.stat = _STAT


class FaultySource(DelvecSource):
    """``format("faulty")``."""

    @classmethod
    def name(cls):
        return "faulty"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        request = WriteRequest.of(self.options, overwrite=overwrite, streaming=True)
        return FaultyWriter(request, schema, overwrite=overwrite)


def main(folder, faults):
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(FaultySource)
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    query = (
        frame.repartition(2)
        .writeStream.format("faulty")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .option("userMetadata", faults)
        .trigger(availableNow=True)
        .start(f"{folder}/people")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
