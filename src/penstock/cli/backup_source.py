"""A running broker as the source of a backup: asked through its control socket."""

from __future__ import annotations

from typing import Any

from penstock.backup.backup_error import BackupError
from penstock.backup.taking.source import Beginning, Source
from penstock.cli.ctl.broker_control import BrokerControl, NoBroker, Refused


class RunningBroker(Source):
    def __init__(self, control: BrokerControl) -> None:
        self._control = control
        self._lease = ""

    def begin(self) -> Beginning:
        answer = self._ask("begin_backup", {})
        self._lease = answer["lease"]
        notes: list[str] = []
        if answer["postgres_queues"]:
            notes.append(
                f"{answer['postgres_queues']} queues have their messages in PostgreSQL, which is not in this backup:"
                " use pg_dump for it"
            )
        return Beginning(answer["checkpoint"], answer["lsn"], answer["log_id"], answer["version"], True, tuple(notes))

    def renew(self) -> int:
        return int(self._ask("renew_backup", {"lease": self._lease})["durable_lsn"])

    def end(self) -> None:
        lease, self._lease = self._lease, ""
        self._ask("end_backup", {"lease": lease})

    def give_up(self) -> None:
        if self._lease:
            try:
                self.end()
            except BackupError:
                # It lapses by itself.
                return

    def _ask(self, operation: str, arguments: dict[str, str]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._control.ask(operation, arguments)
            return answer
        except (Refused, NoBroker, OSError) as error:
            raise BackupError(f"the backup is given up: {error}") from error
