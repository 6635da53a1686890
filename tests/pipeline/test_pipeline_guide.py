"""docs/pipeline.md: its examples run on a real lake, and its tables name every option and every column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'penstock[pipeline]'")

from penstock.cli.main import pipeline
from penstock.pipeline.archive import ArchiveOptions, archive
from penstock.pipeline.columns import EVENTS
from penstock.pipeline.lake.opening import Lake
from penstock.pipeline.refine.life_columns import LIVES
from penstock.pipeline.refine.minute_columns import MINUTES
from penstock.pipeline.refine.refine import refine
from penstock.pipeline.source.options import KNOWN
from tests.pipeline.archived import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "pipeline.md").read_text(encoding="utf-8")
# The percentiles and sketches of the service time are named by their first and their last.
LEFT_OUT = {"service_p95_us", "service_p99_us", "service_buckets"}


def test_the_examples_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "data", 20).close()
    archive(spark, ArchiveOptions(str(tmp_path / "data"), str(tmp_path / "lake"), once=True))
    refine(spark, Lake(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) >= 5
    names = {"spark": spark}
    for text in blocks:
        # The process that plans a read has the working folder that Spark was started in.
        block = text.replace('load("data")', f"load({str(tmp_path / 'data')!r})")
        block = block.replace('"source": "data"', f'"source": {str(tmp_path / "data")!r}')
        exec(compile(block, "docs/pipeline.md", "exec"), names)
        shown = capsys.readouterr().out
        # Each shows a table: of queues, or of kinds.
        assert "orders" in shown or "acked" in shown, block


def rows_of(heading: str) -> str:
    """The first cells of the tables below a heading."""
    section = GUIDE.partition(f"{heading}\n")[2]
    assert section, heading
    section = re.split(r"\n#+ ", section)[0]
    return " ".join(re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE))


def test_every_column_is_named() -> None:
    tables = {"### bronze: one row for each event": EVENTS, "### silver: one row for each life that has ended": LIVES}
    tables["### gold: one row for each queue and minute"] = MINUTES
    for heading, schema in tables.items():
        missing = [name for name in schema.names if f"`{name}`" not in rows_of(heading)]
        assert set(missing) <= LEFT_OUT, heading


def test_every_option_of_the_source_is_named() -> None:
    cells = rows_of("## The source: events in Spark")
    for name in {name for names in KNOWN.values() for name in names}:
        assert f"`{name}`" in cells


def test_every_command_is_named() -> None:
    cells = rows_of("## In one minute")
    for name in pipeline.commands:
        assert f"`{name}`" in cells


def test_links_lead_somewhere() -> None:
    for page in ("pipeline.md", "pipeline-cluster.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text(encoding="utf-8")):
            assert (DOCS / target).is_file(), f"{page}: {target}"
