"""The examples of docs/queue-features.md print what they say they print, and its table names every argument."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock.broker.definitions.arguments import OVERFLOW_POLICIES
from penstock.broker.definitions.feature_arguments import FEATURE_ARGUMENTS
from tests.features.stage import Stage

GUIDES = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (GUIDES / "queue-features.md").read_text(encoding="utf-8")
URL_IN_GUIDE = "amqp://guest:guest@127.0.0.1:5672/%2F"
# What a line prints, in one or more lines.
PRINTED = re.compile(r"# -> (.*)")


def test_the_examples_of_the_guide_print_what_they_say(stage: Stage) -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL))
    assert program.count(URL_IN_GUIDE) == 1
    expected = [line for text in PRINTED.findall(program) for line in text.split(" | ")]
    assert len(expected) >= 11
    run = subprocess.run(
        [sys.executable, "-c", program.replace(URL_IN_GUIDE, stage.broker.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == expected


def test_the_guide_names_every_argument_and_every_rule() -> None:
    for name in FEATURE_ARGUMENTS:
        assert f"| `{name}` |" in GUIDE
    for rule in OVERFLOW_POLICIES:
        assert f"| `{rule}` |" in GUIDE
