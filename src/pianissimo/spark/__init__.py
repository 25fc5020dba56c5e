"""The same stream on an Apache Spark cluster: executors read and gather, the driver's durable stream does all else.

Spark schedules ranges, tries them again and brings pieces back. What a range adds is a function of the range, so that a
lost executor, a killed Python worker or a speculative twin changes nothing. No secret and no store are on
executors, and no noise but that of shards; where users or values are named they have the names key, which they look up
by reference.

`pip install pianissimo[spark]`. Whoever may see the Spark UI, event logs or metrics sees exact numbers of events and
labels: they are for those who hold the data.
"""

from pianissimo.spark.micro_batches import foreach_batch
from pianissimo.spark.spark_tables import SparkTicks
from pianissimo.spark.spark_workers import SparkWorkers

__all__ = ["SparkTicks", "SparkWorkers", "foreach_batch"]
