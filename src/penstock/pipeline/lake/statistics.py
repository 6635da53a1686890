"""Minimum and maximum of the columns of a file, as values that JSON can carry and that can be compared.

Numbers stay numbers. Times become ISO text in UTC with six digits behind the second: then the order of the texts is the
order of the times. A column with a null has no statistics, because a file must not be taken for one whose rows are all
below a limit when some have no value at all. Nor have texts and bytes: nothing here prunes by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def as_statistic(value: Any) -> Any:
    """Return the form in which values are kept and compared. A time without a zone is in UTC."""
    if not isinstance(value, datetime):
        return value
    at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def has_statistics(field_type: pa.DataType) -> bool:
    """Return whether the column has an order that is worth keeping."""
    return bool(pa.types.is_integer(field_type) or pa.types.is_timestamp(field_type))


def statistics_of(metadata: pq.FileMetaData, schema: pa.Schema) -> tuple[dict[str, Any], dict[str, Any]]:
    """Minimums and maximums of a file, from its footer."""
    minimums: dict[str, Any] = {}
    maximums: dict[str, Any] = {}
    places = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for field in schema:
        place = places.get(field.name)
        if place is None or not has_statistics(field.type):
            continue
        groups = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
        if not groups or any(group is None or not group.has_min_max or group.null_count for group in groups):
            continue
        minimums[field.name] = as_statistic(min(group.min for group in groups))
        maximums[field.name] = as_statistic(max(group.max for group in groups))
    return minimums, maximums


def may_hold(
    minimums: Mapping[str, Any],
    maximums: Mapping[str, Any],
    at_least: Mapping[str, Any],
    below: Mapping[str, Any],
) -> bool:
    """Return whether a file may have a row with `at_least` <= column < `below`. What is not known may be anything."""
    too_low = any(column in maximums and maximums[column] < as_statistic(limit) for column, limit in at_least.items())
    too_high = any(column in minimums and minimums[column] >= as_statistic(limit) for column, limit in below.items())
    return not too_low and not too_high
