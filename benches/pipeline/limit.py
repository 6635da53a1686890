"""What Spark itself lets through from a source in Python: the same rows, decoded before the clock starts.

Each partition of the journal becomes a file of Arrow batches. A source as small as a source can be maps them and hands
them on: no journal, no checksum, no decoder. The distance between the journal and this is what the journal's decoder
costs, and the distance between this and Parquet is that of Spark's way from Python: a source that has to decode
something will not pass it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benches.pipeline.journals import Made
from penstock.history.folder_log import FolderLog
from penstock.pipeline.decode.events import read_range
from penstock.pipeline.decode.ranges import plan
from penstock.pipeline.decode.request import Request
from penstock.pipeline.source.shape import arrow_schema, shaped, spark_schema

FORMAT: Final = "ready_made"


def write_ready_made(made: Made, folder: Path) -> None:
    """The events of each partition, in the batches in which the source hands them to Spark."""
    folder.mkdir()
    whole = arrow_schema(spark_schema("events"))
    with closing(FolderLog(str(made.folder))) as log:
        state = log.state()
        for number, part in enumerate(plan(log, state.first_lsn, state.end_lsn, None, Request())):
            with pa.OSFile(str(folder / f"{number:05}.arrow"), "wb") as file, pa.ipc.new_file(file, whole) as writer:
                for batch in read_range(log, part, Request()):
                    writer.write_batch(shaped(batch, whole))


def ready_made(spark: SparkSession, folder: Path, columns: Sequence[str]) -> DataFrame:
    spark.dataSource.register(_source())
    whole = spark_schema("events")
    schema = StructType([whole[name] for name in columns])
    return spark.read.format(FORMAT).schema(schema).option("folder", str(folder)).load()


def _source() -> type[DataSource]:
    """Made in a function, so that its code goes to the workers with it: they do not know this module."""

    class ReadyMadeReader(DataSourceReader):
        def __init__(self, folder: str, names: list[str]) -> None:
            self.folder = folder
            self.names = names

        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow

            from penstock.pipeline.warm_worker import task_begins

            task_begins()
            # Mapped: batches are not copied, and columns that nobody asks for are not touched.
            file = pyarrow.ipc.open_file(pyarrow.memory_map(partition.value))
            fields = [file.schema.get_field_index(name) for name in self.names]
            options = pyarrow.ipc.IpcReadOptions(included_fields=sorted(fields))
            file = pyarrow.ipc.open_file(pyarrow.memory_map(partition.value), options=options)
            for number in range(file.num_record_batches):
                yield file.get_batch(number).select(self.names)

    class ReadyMade(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def reader(self, schema: StructType) -> DataSourceReader:
            return ReadyMadeReader(str(self.options["folder"]), schema.names)

    return ReadyMade
