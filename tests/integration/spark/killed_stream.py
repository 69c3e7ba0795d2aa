"""Killed by test_spark_stream_source: the query dies once its third batch is written, before Spark records it."""

import os
import signal
import sys
import threading

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

_ATTEMPTS = 20


def main(folder, results, checkpoint):
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    dying = threading.Event()

    def keep(frame, number):
        frame.write.mode("overwrite").parquet(f"{results}/batch={number}")
        if number == 2:
            dying.set()
            os.kill(java, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    for attempt in range(_ATTEMPTS):
        frame = spark.readStream.format("delvec").option("maxFilesPerTrigger", "1").load(folder)
        query = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(keep).start()
        try:
            query.awaitTermination()
        except Exception as error:
            if dying.is_set():
                signal.pause()  # the other thread kills this process, after Java
            # Spark gives its Python process ten seconds to start.
            slow = isinstance(error, StreamingQueryException) and "failed to connect back" in str(error)
            if not slow or attempt + 1 == _ATTEMPTS:
                raise


if __name__ == "__main__":
    main(*sys.argv[1:])
