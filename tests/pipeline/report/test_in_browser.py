"""The report in a real browser: drawn on a wide screen and on a phone, without a request and without a complaint."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("deltalake", reason="needs the lake: pip install 'penstock[pipeline]'")

from penstock.pipeline.jobs.report import report
from tests.pipeline.report.gold_lake import gold_row, lake_with

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECONDS_FOR_A_PAGE = 120
# A name in one word, longer than a line, that would like to be a tag.
NASTY = "<img src=x onerror=document.title=1>" + "n" * 150
# Asked in the page itself, when it is drawn.
QUESTION = """<script id="question">addEventListener("load", () => {
  const box = (line) => line.getBoundingClientRect();
  const lines = [...document.querySelectorAll("svg polyline, svg path")].map(box);
  document.getElementById("question").textContent = JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, title: document.title,
    images: document.images.length, requests: performance.getEntriesByType("resource").length,
    plots: document.querySelectorAll("svg").length, lines: lines.length,
    drawn: lines.filter((line) => line.width > 100 && line.right <= innerWidth).length,
  });
});</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]


def page_of(folder: Path) -> Path:
    """A report of three hours of two queues."""
    rows = [
        gold_row(
            minute,
            queue,
            published=600 + minute,
            delivered=600,
            acked=600,
            ended=600,
            depth=minute * 10,
            wait_buckets={80: 400, 120: 200},
            service_buckets={60: 600},
            consumers=1,
            busy_us=30_000_000,
        )
        for queue in ("orders", NASTY)
        for minute in range(180)
    ]
    lake_with(folder / "lake", rows)
    page = folder / "report.html"
    assert CliRunner().invoke(report, ["--lake", str(folder / "lake"), "--out", str(page)]).exit_code == 0
    return page


def asked(page: Path, width: int, folder: Path) -> dict[str, Any]:
    """What the page says of itself in a window of this width."""
    # The page forbids scripts; what is asked has to be let in by whoever asks.
    text = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page.read_text(encoding="utf-8"))
    copy = folder / "asked.html"
    copy.write_text(text.replace("</body>", QUESTION + "</body>"), encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_A_PAGE,
        check=True,
    )
    found = re.search(r'<script id="question">(\{.*?\})</script>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    return answer


@pytest.mark.parametrize("width", [1200, 500])
def test_every_plot_is_drawn_and_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    answer = asked(page_of(tmp_path), width, tmp_path)
    assert answer["width"] == width
    assert answer["page"] <= width
    # Rates, depth, wait, service and shares of two queues; each has a line at least.
    assert answer["plots"] == 10
    assert answer["drawn"] == answer["lines"] >= 10
    assert answer["requests"] == 0
    # The name of a queue stayed a name.
    assert answer["images"] == 0
    assert "penstock" in answer["title"]
