"""The examples of docs/messages-at-hand.md print what they say they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "messages-at-hand.md"
# What a line prints, in one or more lines.
PRINTED = re.compile(r"# -> (.*)")


def test_the_examples_of_the_guide_print_what_they_say() -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL))
    expected = [line for text in PRINTED.findall(program) for line in text.split(" | ")]
    assert len(expected) >= 20
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    assert run.stdout.splitlines() == expected
