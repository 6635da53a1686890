"""The Spark source and sink `penstock`. Spark looks for modules with this name, so nothing has to be registered.

What it does is in `penstock.pipeline.source` and `penstock.pipeline.sink`.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """`spark.read.format("penstock")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        from penstock.pipeline.source.data_source import view_schema

        return view_schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.pipeline.source.data_source import make_reader

        return make_reader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from penstock.pipeline.source.data_source import make_stream_reader

        return make_stream_reader(self._options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.sink.data_source import make_writer

        return make_writer(self._options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from penstock.pipeline.sink.data_source import make_stream_writer

        return make_stream_writer(self._options(), schema, overwrite)

    def _options(self) -> dict[str, str]:
        # A plain dict, which can be sent to workers. Its keys stay in lower case, whatever the user wrote.
        return {name.lower(): value for name, value in self.options.items()}
