"""Run the matrix on a real RabbitMQ and keep its answers: `python -m tests.permissions.record`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock.broker.access.password import rabbitmq_hash
from tests.oracle import RabbitMQ, version
from tests.permissions import matrix
from tests.permissions.matrix import Matrix

RECORDED = Path(__file__).with_name("recorded.json")
Answers = dict[str, dict[str, str]]


def load() -> tuple[str, Answers]:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recorded["rabbitmq"], recorded["answers"]


def definitions() -> str:
    """The users of the matrix, for rabbitmqctl."""
    hashed = rabbitmq_hash(matrix.PASSWORD.encode())
    users = [
        {"name": name, "password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
        for name in (matrix.ADMIN, *matrix.USERS)
    ]
    topic = {"exchange": "m-topic", "write": matrix.TOPIC_PATTERN, "read": matrix.TOPIC_PATTERN}
    return json.dumps(
        {
            "users": users,
            "vhosts": [{"name": matrix.OTHER}],
            "permissions": matrix.permissions(),
            "topic_permissions": [{"user": matrix.TOPICAL, "vhost": matrix.OWN, **topic}],
        }
    )


def answers_of(host: str, port: int) -> Answers:
    runs = Matrix(host, port)
    return {
        f"{user} in {vhost}": runs.run(user, vhost) for user in matrix.USERS for vhost in (matrix.OWN, matrix.OTHER)
    }


def prepare(rabbit: RabbitMQ) -> None:
    rabbit.ctl("import_definitions", given=definitions())


def main() -> int:
    with RabbitMQ() as rabbit:
        prepare(rabbit)
        answers = answers_of(rabbit.host, rabbit.port)
    recorded = {"rabbitmq": version(), "answers": answers}
    RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
