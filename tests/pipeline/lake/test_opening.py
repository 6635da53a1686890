"""A lake knows its format and its log, and keeps to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.pipeline.jobs.command.job import Job
from penstock.pipeline.jobs.maintain import maintain
from penstock.pipeline.jobs.refine import refine
from penstock.pipeline.lake.opening import Lake, open_lake
from penstock.pipeline.lake.table_file import LakeError


def test_a_new_lake_is_delta_unless_asked_otherwise(tmp_path: Path) -> None:
    assert Lake(tmp_path / "one").format == "delta"
    assert Lake(tmp_path / "two", "parquet").format == "parquet"


def test_a_lake_keeps_its_format(tmp_path: Path) -> None:
    Lake(tmp_path, "parquet")
    assert Lake(tmp_path).format == "parquet"
    with pytest.raises(LakeError, match="has the format parquet"):
        Lake(tmp_path, "delta")


def test_a_format_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="one of delta, parquet"):
        Lake(tmp_path, "iceberg")
    assert not (tmp_path / "_penstock").exists()


def test_an_address_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="mount the storage"):
        Lake("s3://bucket/lake")


def test_a_lake_belongs_to_one_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.log_id == ""
    lake.bind("1234")
    lake.bind("1234")
    again = Lake(tmp_path)
    assert again.log_id == "1234"
    with pytest.raises(LakeError, match="another data folder"):
        again.bind("5678")
    assert again.log_id == "1234"


def test_a_table_that_a_lake_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="bronze, poison, silver, gold"):
        Lake(tmp_path).table("../elsewhere")


def test_a_lake_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    Lake(tmp_path)
    about = tmp_path / "_penstock" / "lake.json"
    about.write_text(json.dumps({"format": "delta", "version": 2, "log_id": ""}))
    with pytest.raises(LakeError, match="another version"):
        Lake(tmp_path)


def test_a_lake_that_is_not_there_is_not_made_by_who_looks_for_it(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="nothing is no lake: `penstock pipeline archive` makes one"):
        open_lake(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    Lake(tmp_path / "lake", "parquet")
    assert open_lake(tmp_path / "lake").format == "parquet"


def test_a_lake_whose_own_file_is_damaged_is_left_alone(tmp_path: Path) -> None:
    Lake(tmp_path)
    about = tmp_path / "_penstock" / "lake.json"
    for damaged in (b"", b'{"format": "delta", "ver', b"\xff\xfe"):
        about.write_bytes(damaged)
        with pytest.raises(LakeError, match=r"lake\.json is damaged"):
            Lake(tmp_path)
        assert about.read_bytes() == damaged


@pytest.mark.parametrize("job", [refine, maintain])
def test_jobs_that_go_on_with_a_lake_do_not_make_one(tmp_path: Path, job: Job) -> None:
    told = CliRunner().invoke(job, ["--lake", str(tmp_path / "nothing")])
    assert (told.exit_code, "nothing is no lake" in told.stderr) == (1, True)
    assert not (tmp_path / "nothing").exists()
