"""The Spark sink `penstock_lake`. Spark looks for modules with this name, so nothing has to be registered.

What it does is in `penstock.pipeline.lake.sink`.
"""

from __future__ import annotations

import uuid

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """`write.format("penstock_lake")` and `writeStream`. Tables are read as what they are: Delta or Parquet."""

    @classmethod
    def name(cls) -> str:
        return "penstock_lake"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.lake.sink import LakeBatchWriter, sink_options
        from penstock.pipeline.lake.table_file import LakeError

        if overwrite:
            raise LakeError("a lake only grows: use mode('append')")
        return LakeBatchWriter(sink_options(self._options(), schema), uuid.uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from penstock.pipeline.lake.sink import LakeStreamWriter, sink_options
        from penstock.pipeline.lake.table_file import LakeError

        if overwrite:
            raise LakeError("a lake only grows: use outputMode('append')")
        return LakeStreamWriter(sink_options(self._options(), schema))

    def _options(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.options.items()}
