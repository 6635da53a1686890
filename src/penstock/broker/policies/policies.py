"""The policies of a vhost: which of them apply to which queue and exchange, and having them take effect.

Names are matched when something is declared and when a policy changes, never for a message. A change is looked at for
every queue and exchange of the vhost, some hundred at a time: in a vhost with very many, over several turns. What is
declared meanwhile goes by the new policies at once. Each queue changes in one step, between two messages.

Invariants
  1. A queue's `effective_arguments` are those of its arguments and of the policies in `_queues` under its name.
  2. When no walk is under way, every queue and exchange has the policies that match it best.
  3. `done` is called once for each change, when its walk is over: the walk of a later change covers the earlier one.

Policies are in the journal; which of them apply is worked out again after a start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.definitions.policy_records import Parameters, PolicyRecords, whole_policies
from penstock.broker.features.re_equip import re_equip
from penstock.broker.operations.call_errors import BadRequest, NotFound
from penstock.broker.policies.effective import effective_arguments, effective_definition
from penstock.broker.policies.parameters import check_component, check_parameter, no_such_parameter
from penstock.broker.policies.policy import Policy, PolicyDefinition
from penstock.broker.policies.ranking import Ranking
from penstock.limits import POLICIES_PER_VHOST_MAX
from penstock.queues.delayed.next_turn import NextTurn
from penstock.routing.exchange import alternate_of

if TYPE_CHECKING:
    from penstock.broker.vhost.vhost import VHost
    from penstock.queues.leaving.expiry import ExpirySchedule
    from penstock.queues.queue import Queue
    from penstock.routing.exchange import Exchange

# Names looked at in one turn, and what a queue that changes counts as.
LOOKS_AT_ONCE: Final = 1000
CHANGE_COSTS: Final = 25
# And for how long, whatever the patterns cost.
TURN_S: Final = 0.004

Done = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """What applies to one queue or exchange."""

    policy: Policy | None
    operator: Policy | None

    def definition(self) -> PolicyDefinition:
        return effective_definition(self.policy, self.operator)


NOTHING: Final = Applied(None, None)


class Policies:
    def __init__(self, vhost: VHost, expiries: ExpirySchedule) -> None:
        self._vhost = vhost
        self._expiries = expiries
        self.ordinary = Ranking()
        self.operators = Ranking()
        self.parameters: Parameters = {}
        # Of those that have a policy.
        self._queues: dict[str, Applied] = {}
        self._exchanges: dict[str, Applied] = {}
        # Names that a walk has still to look at, and who waits for its end.
        self._walk: deque[tuple[bool, str]] = deque()
        self._waiting: list[Done] = []
        self._later = NextTurn(self._go_on, expiries)

    # --- what there is --------------------------------------------------------------------------------

    def ranking(self, is_operator: bool) -> Ranking:
        return self.operators if is_operator else self.ordinary

    def restore(self, records: PolicyRecords) -> None:
        """Take what the last run has left, before exchanges and queues are there."""
        for policy in records.policies.values():
            self.ordinary.put(policy)
        for policy in records.operator_policies.values():
            self.operators.put(policy)
        self.parameters.update(records.parameters)

    def sections(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return what lasts, as the whole of the definitions has it."""
        return whole_policies(self.ordinary.by_name.values(), self.operators.by_name.values(), self.parameters)

    def put(self, policy: Policy, is_operator: bool, done: Done) -> None:
        """Set a policy, or change the one of that name. `done` is called when it has taken effect everywhere."""
        ranking = self.ranking(is_operator)
        if policy.name not in ranking.by_name and len(ranking.by_name) >= POLICIES_PER_VHOST_MAX:
            raise BadRequest(
                f"vhost '{self._vhost.name}' has its {POLICIES_PER_VHOST_MAX} policies already; clear some"
            )
        ranking.put(policy)
        if self._vhost.log is not None:
            self._vhost.log.policy_set(self._vhost.name, policy, is_operator)
        self._begin(done)

    def clear(self, name: str, is_operator: bool, done: Done) -> None:
        if not self.ranking(is_operator).remove(name):
            raise NotFound("Parameter does not exist")
        if self._vhost.log is not None:
            self._vhost.log.policy_cleared(self._vhost.name, name, is_operator)
        self._begin(done)

    def set_parameter(self, component: str, name: str, value: Any) -> None:
        check_component(component)
        is_new = (component, name) not in self.parameters
        check_parameter(name, value, len(self.parameters) if is_new else 0)
        self.parameters[(component, name)] = value
        if self._vhost.log is not None:
            self._vhost.log.parameter_set(self._vhost.name, component, name, value)

    def clear_parameter(self, component: str, name: str) -> None:
        check_component(component)
        if (component, name) not in self.parameters:
            raise no_such_parameter()
        del self.parameters[(component, name)]
        if self._vhost.log is not None:
            self._vhost.log.parameter_cleared(self._vhost.name, component, name)

    # --- what applies -----------------------------------------------------------------------------------

    def of_queue(self, name: str) -> Applied:
        return self._queues.get(name, NOTHING)

    def of_exchange(self, name: str) -> Applied:
        return self._exchanges.get(name, NOTHING)

    def queue_added(self, queue: Queue) -> None:
        """A queue is about to be used: it goes by its policies from the start."""
        if self.ordinary.by_name or self.operators.by_name:
            self._note(queue)
            queue.effective_arguments = self._arguments_for(queue)

    def queue_removed(self, name: str) -> None:
        self._queues.pop(name, None)

    def exchange_added(self, exchange: Exchange) -> None:
        if self.ordinary.by_name or self.operators.by_name:
            self._look_at_exchange(exchange)

    def exchange_removed(self, name: str) -> None:
        self._exchanges.pop(name, None)

    def redefined(self, queue: Queue, has_moved: bool) -> None:
        """The queue has other arguments now: have them take effect, with what its policies say."""
        self._note(queue)
        self._change(queue, has_moved)

    def _note(self, queue: Queue) -> bool:
        """Find out what applies; return whether that is something else than before."""
        applied = Applied(
            self.ordinary.for_queue(queue.name, queue.arguments), self.operators.for_queue(queue.name, queue.arguments)
        )
        return _noted(self._queues, queue.name, applied)

    def _arguments_for(self, queue: Queue) -> dict[str, Any]:
        applied = self.of_queue(queue.name)
        return queue.arguments if applied is NOTHING else effective_arguments(queue.arguments, applied.definition())

    def _change(self, queue: Queue, has_moved: bool = False) -> None:
        before = queue.effective_arguments
        queue.effective_arguments = self._arguments_for(queue)
        re_equip(self._vhost, queue, before, self._expiries, has_moved)
        # Publishers remember how a queue takes messages.
        self._vhost.topology_version += 1

    def _look_at_exchange(self, exchange: Exchange) -> bool:
        if exchange.name == "":
            # As in RabbitMQ: what the default exchange does not route goes nowhere else.
            return False
        applied = Applied(self.ordinary.for_exchange(exchange.name), self.operators.for_exchange(exchange.name))
        if not _noted(self._exchanges, exchange.name, applied):
            return False
        exchange.alternate = alternate_of(effective_arguments(exchange.arguments, applied.definition()))
        self._vhost.topology_version += 1
        return True

    # --- a walk over all of them --------------------------------------------------------------------------

    def _begin(self, done: Done) -> None:
        self._waiting.append(done)
        self._walk = deque([(False, name) for name in self._vhost.exchanges])
        self._walk.extend([(True, name) for name in self._vhost.queues])
        self._go_on(self._vhost.clock.wall_ms())

    def _go_on(self, now_ms: int) -> None:
        looks = LOOKS_AT_ONCE
        walk = self._walk
        clock = self._vhost.clock
        until_s = clock.monotonic_s() + TURN_S
        while walk and looks > 0 and clock.monotonic_s() < until_s:
            is_queue, name = walk.popleft()
            looks -= 1
            if is_queue:
                queue = self._vhost.queues.get(name)
                if queue is not None and self._note(queue):
                    self._change(queue)
                    looks -= CHANGE_COSTS
            else:
                exchange = self._vhost.exchanges.get(name)
                if exchange is not None and self._look_at_exchange(exchange):
                    looks -= CHANGE_COSTS
        if walk:
            self._later.soon(now_ms)
            return
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def stop(self) -> None:
        """The vhost is going away."""
        self._walk.clear()
        self._later.stop()


def _noted(known: dict[str, Applied], name: str, applied: Applied) -> bool:
    if known.get(name, NOTHING) == applied:
        return False
    if applied == NOTHING:
        del known[name]
    else:
        known[name] = applied
    return True
