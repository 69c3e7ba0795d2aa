"""``format("delvec")``: a Python data source for reads, writes and streams of Spark."""
