"""Run the scripts on a real RabbitMQ and keep its answers: `python -m tests.differential.record`.

`--show` prints the transcripts instead of keeping them, `--only TEXT` takes the scripts of that subject
or, where there is no such subject, those whose name contains the text; `--port P` uses a broker that already runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from ..oracle import RabbitMQ, version
from . import scripts  # noqa: F401 - importing registers them
from .session import REGISTRY, Transcript, run

RECORDED = Path(__file__).with_name("recorded.json")


def load() -> tuple[str, dict[str, Transcript]]:
    """The version of the recorded RabbitMQ, and its transcript of every script."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recorded["rabbitmq"], recorded["scripts"]


def save(transcripts: dict[str, Transcript]) -> None:
    recorded = {"rabbitmq": version(), "scripts": {name: transcripts[name] for name in sorted(transcripts)}}
    RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Record what RabbitMQ answers to the scripts.")
    parser.add_argument("--only", default="", help="a subject, or a part of scripts' names")
    parser.add_argument("--show", action="store_true", help="print the transcripts, keep nothing")
    parser.add_argument("--port", type=int, help="a broker that already runs on this loopback port")
    options = parser.parse_args()
    chosen = [each for each in REGISTRY.values() if each.subject == options.only]
    chosen = chosen or [each for each in REGISTRY.values() if options.only in each.name]
    with ExitStack() as stack:
        port = options.port or stack.enter_context(RabbitMQ()).port
        transcripts = {each.name: run(each, "127.0.0.1", port) for each in chosen}
    if options.show:
        for name, transcript in transcripts.items():
            print(f"\n# {name}")  # noqa: T201
            for place, lines in transcript.items():
                print(*(f"{place}  {line}" for line in lines), sep="\n")  # noqa: T201
        return 0
    stopped = [name for name, transcript in transcripts.items() if "script" in transcript]
    if stopped:
        sys.exit(f"RabbitMQ did not answer as these scripts expect: {stopped}")
    save(transcripts if not options.only else {**load()[1], **transcripts})
    return 0


if __name__ == "__main__":
    sys.exit(main())
