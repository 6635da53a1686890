"""The example of a producer and a consumer that go as fast as they can."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import penstock

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "throughput"


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE / program), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def test_what_the_producer_puts_the_consumer_finalizes_and_both_say_how_fast(penstock_url: str) -> None:
    producer = start("producer.py", penstock_url, "--seconds", "2")
    consumer = start("consumer.py", penstock_url, "--idle", "5")
    put, done = said(producer), said(consumer)
    assert any(re.fullmatch(r"[\d,]+ messages a second", line) for line in put)
    total = re.fullmatch(r"(\d+) messages put, ([\d,]+) a second", put[-1])
    finalized = re.fullmatch(r"(\d+) messages finalized, ([\d,]+) a second; 0 left", done[-1])
    assert total is not None, put
    assert finalized is not None, done
    assert int(total[1]) == int(finalized[1]) > 0
    with penstock.Session(penstock_url) as session:
        stats = session.stats("classic")
        assert (stats.finalized_count, stats.producer_count, stats.consumer_count) == (int(total[1]), 0, 0)


def test_batches_are_put_and_finalized_too(penstock_url: str) -> None:
    put = said(start("producer.py", penstock_url, "--seconds", "0.2", "--batch", "100"))
    done = said(start("consumer.py", penstock_url, "--idle", "1", "--batch", "100"))
    assert put[-1].split()[0] == done[-1].split()[0]
