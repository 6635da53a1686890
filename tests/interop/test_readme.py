"""The pika example of README.md does what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pika.adapters.blocking_connection import BlockingChannel

README = Path(__file__).resolve().parents[2] / "README.md"
URL_IN_README = "amqp://guest:guest@127.0.0.1:5672/%2F"


def test_the_example_in_the_readme_prints_the_message_it_sent(broker_url: str, channel: BlockingChannel) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [block for block in blocks if "pika.BlockingConnection" in block]
    assert example.count(URL_IN_README) == 1
    assert len(example.strip().splitlines()) <= 10
    queue = re.search(r'queue_declare\("(\w+)"', example)
    assert queue is not None
    channel.queue_delete(queue[1])
    run = subprocess.run(
        [sys.executable, "-c", example.replace(URL_IN_README, broker_url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout == "b'hello'\n"
    assert channel.queue_delete(queue[1]).method.message_count == 0
