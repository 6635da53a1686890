"""The report: what gold says, as data, as a page and as text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="needs the lake: pip install 'penstock[pipeline]'")

from penstock.pipeline.jobs.report import report as command
from penstock.pipeline.lake.opening import open_lake
from penstock.pipeline.lake.table_file import LakeError
from penstock.pipeline.report.minute_rows import read_span
from penstock.pipeline.report.page import html_page
from penstock.pipeline.report.report import report
from penstock.pipeline.report.summary import summarise
from penstock.pipeline.report.terminal import report_text, shortened, trend
from tests.pipeline.report.gold_lake import gold_row, lake_with

NASTY = "<script>alert(1)</script>\"'&\x1b[31m"
VOID = {"meta", "link", "br", "hr", "img", "input"}


def busy_rows(minutes: int, queue: str = "orders") -> list[dict[str, object]]:
    return [
        gold_row(
            minute,
            queue,
            published=120,
            published_bytes=12_000,
            delivered=100,
            requeued=10,
            acked=50,
            dead_lettered=10,
            ended=60,
            depth=60 * (minute + 1),
            wait_buckets={80: 50, 120: 10},
            service_buckets={-1: 60},
            dead_letter_causes={"rejected": 8, "expired": 2},
            consumers=2,
            busy_us=60_000_000,
        )
        for minute in range(minutes)
    ]


class Checked(HTMLParser):
    """Tags that match, and every address and text in the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_minutes_are_summed_up_and_percentiles_merged(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", busy_rows(10))
    made = report(lake, hours=None)
    (queue,) = made.queues
    assert (queue.published, queue.ended, queue.delivered, queue.depth, queue.depth_max) == (1200, 600, 1000, 600, 600)
    assert (queue.in_rate, queue.out_rate, queue.redelivery_rate, queue.utilisation) == (2.0, 1.0, 0.1, 0.5)
    assert queue.outcomes == {"acked": 500, "dead-lettered": 100}
    assert queue.dead_letter_causes == {"rejected": 80, "expired": 20}
    assert queue.wait is not None
    assert queue.wait.p50 == pytest.approx(2**10, rel=0.1)
    assert queue.wait.p95 == pytest.approx(2**15, rel=0.1)
    assert queue.service is not None
    assert queue.service.p99 == 0.0


def test_a_span_ends_at_the_newest_minute_and_begins_hours_before(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", busy_rows(150), files=5)
    made = report(lake, hours=1)
    assert (made.minutes, made.queues[0].published) == (60, 60 * 120)
    assert (made.first, made.last) == ("2026-03-01T13:30:00+00:00", "2026-03-01T14:29:00+00:00")


def test_quiet_minutes_have_no_rate_and_the_depth_of_before(tmp_path: Path) -> None:
    rows = [gold_row(0, published=60, depth=60), gold_row(3, ended=30, acked=30, depth=30), gold_row(3, "other")]
    (queue, _) = summarise(read_span(lake_with(tmp_path / "lake", rows), None)).queues
    assert [part.depth for part in queue.parts] == [60, 60, 60, 30]
    assert [part.in_rate for part in queue.parts] == [1.0, 0.0, 0.0, 0.0]
    assert [part.out_rate for part in queue.parts] == [0.0, 0.0, 0.0, 0.5]


def test_long_spans_have_fewer_points_and_lose_nothing(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", busy_rows(25))
    made = summarise(read_span(lake, None), points_max=10)
    parts = made.queues[0].parts
    assert (made.minutes_per_part, len(parts)) == (3, 9)
    # The last one stands for a single minute.
    assert [part.in_rate for part in parts] == [2.0] * 9


def test_queues_are_chosen_by_pattern_and_virtual_host(tmp_path: Path) -> None:
    rows = [gold_row(0, name, published=1) for name in ("a.1", "a.2", "b.1")]
    rows.append(gold_row(0, "a.1", vhost="other"))
    lake = lake_with(tmp_path / "lake", rows)
    chosen = report(lake, queues=["a.*"], vhost="/").queues
    assert [queue.queue for queue in chosen] == ["a.1", "a.2"]


def test_queues_that_clients_never_see_have_to_be_asked_for(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", [gold_row(0, "orders"), gold_row(0, "amq.dedup.orders")])
    assert [queue.queue for queue in report(lake).queues] == ["orders"]
    assert [queue.queue for queue in report(lake, queues=["amq.*"]).queues] == ["amq.dedup.orders"]


def test_the_page_is_whole_and_asks_nothing_of_the_network(tmp_path: Path) -> None:
    lake = lake_with(tmp_path / "lake", [*busy_rows(10), *busy_rows(10, NASTY), gold_row(4, "quiet", vhost="v")])
    out = tmp_path / "report.html"
    report(lake, out, hours=None)
    text = out.read_text(encoding="utf-8")
    page = Checked(text)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in text
    assert all(re.fullmatch(r"#q\d+", address) for address in page.addresses)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    # Of the quiet one: rates and depth.
    assert page.tags.count("svg") == 5 + 5 + 2
    assert "v/quiet" in page.text
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert len(ET.fromstring(drawing)) > 3


def test_queues_beyond_the_plots_are_in_the_table(tmp_path: Path) -> None:
    rows = [gold_row(0, f"q{number}", published=100 - number) for number in range(60)]
    page = html_page(report(lake_with(tmp_path / "lake", rows)))
    assert page.count("<h2") == 50
    assert "10 more queues are in the table alone" in page
    assert "q59" in page


@pytest.mark.parametrize("width", [30, 60, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    lake = lake_with(tmp_path / "lake", [*busy_rows(10, "a.long.name." * 9), *busy_rows(10, NASTY)])
    text = report_text(report(lake, hours=None), width)
    lines = text.splitlines()
    assert max(len(line) for line in lines[2:]) <= max(width, 48)
    assert "\x1b" not in text
    assert "rejected" in text


def test_wide_terminals_have_every_column(tmp_path: Path) -> None:
    text = report_text(report(lake_with(tmp_path / "lake", busy_rows(10)), hours=None), 300)
    head = text.splitlines()[2].split()
    assert head == [
        "queue",
        "in",
        "out",
        "depth",
        *("wait", "p50", "p95", "p99", "service", "p50", "p95", "p99"),
        "redelivered",
        "busy",
    ]
    assert "2/s" in text
    assert "1/s" in text
    assert "50 %" in text


def test_names_are_cut_in_the_middle() -> None:
    assert shortened("orders.eu.created", 9) == "orde…ated"
    assert shortened("short", 9) == "short"


def test_a_trend_shows_where_the_most_was() -> None:
    assert trend([0, 0, 8, 4], 4) == "▁▁█▅"
    assert trend([0, 0]) == "▁▁"
    assert trend([]) == ""


def test_a_folder_that_is_no_lake_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="archive"):
        open_lake(str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


def test_a_lake_without_minutes_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="refine"):
        report(lake_with(tmp_path / "lake", []))


def test_the_command_writes_data_and_page(tmp_path: Path) -> None:
    lake_with(tmp_path / "lake", busy_rows(3))
    given = ["--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "page.html"), "--json", "--all"]
    told = CliRunner().invoke(command, given)
    assert told.exit_code == 0
    assert json.loads(told.stdout)["queues"][0]["published"] == 360
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")
    told = CliRunner().invoke(command, ["--lake", str(tmp_path / "nothing")])
    assert (told.exit_code, "no lake" in told.stderr) == (1, True)
