"""Performs operations for whatever door asks: finds the operation, calls it, audits it, answers when it is durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.audit.event import ACCESS_REFUSED, Event
from penstock.broker.operations.actor import Actor
from penstock.broker.operations.call import Call
from penstock.broker.operations.call_errors import BadRequest, CallError, NotAllowed, of_amqp
from penstock.broker.operations.later import Later
from penstock.broker.operations.operation import Operation
from penstock.errors import AmqpError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


@dataclass(slots=True)
class Answer:
    """What the operation returned; or why it could not be done."""

    result: Any = None
    error: CallError | None = None


Answered = Callable[[Answer], None]


class Performer:
    def __init__(self, broker: Broker, operations: Mapping[str, Operation]) -> None:
        self._broker = broker
        self.operations = operations

    def perform(
        self,
        actor: Actor,
        name: str,
        arguments: Mapping[str, Any],
        answered: Answered,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Perform an operation and call `answered` once, at once or later. Only a bug raises."""
        operation = self.operations.get(name)
        if operation is None:
            near = get_close_matches(name, self.operations, 1)
            meant = f"; did you mean '{near[0]}'?" if near else ""
            answered(Answer(error=BadRequest(f"there is no operation '{name[:100]}'{meant}")))
            return
        call = Call(self._broker, actor)
        try:
            result = operation(call, arguments)
        except NotAllowed as error:
            self._broker.audit.note(actor, Event(ACCESS_REFUSED, {"operation": name}))
            answered(Answer(error=error))
        except CallError as error:
            answered(Answer(error=error))
        except AmqpError as error:
            answered(Answer(error=of_amqp(error)))
        else:
            if isinstance(result, Later):
                result.on_progress = on_progress
                result.when_done(partial(self._done, call, operation, answered))
            else:
                self._finish(call, operation, Answer(result), answered)

    def _done(self, call: Call, operation: Operation, answered: Answered, later: Later) -> None:
        if later.error is not None:
            answered(Answer(error=later.error))
        else:
            self._finish(call, operation, Answer(later.result), answered)

    def _finish(self, call: Call, operation: Operation, answer: Answer, answered: Answered) -> None:
        for event in call.events:
            self._broker.audit.note(call.actor, event)
        log = self._broker.log
        if not operation.changes or log is None:
            answered(answer)
            return

        def durable(is_durable: bool) -> None:
            if is_durable:
                answered(answer)
            else:
                answered(Answer(error=CallError("the broker could not write to its disk; see its log")))

        log.when_durable(durable)
