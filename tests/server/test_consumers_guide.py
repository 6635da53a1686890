"""The examples of docs/consumers.md print what they say they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock.testing import Broker

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "consumers.md"
URL_IN_GUIDE = "amqp://guest:guest@127.0.0.1:5672/%2F"
# What a line prints, in one or more lines.
PRINTED = re.compile(r"# -> (.*)")


def test_the_examples_of_the_guide_print_what_they_say(broker: Broker) -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL))
    assert program.count(URL_IN_GUIDE) == 1
    expected = [line for text in PRINTED.findall(program) for line in text.split(" | ")]
    assert len(expected) >= 7
    run = subprocess.run(
        [sys.executable, "-c", program.replace(URL_IN_GUIDE, broker.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == expected
