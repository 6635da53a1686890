"""Policies of one kind in one vhost, the one that counts most first.

One policy at most applies to a queue or an exchange: of those that match, the one with the highest priority. Among
equal priorities RabbitMQ does not say which; here it is the one whose name comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.policies.name_pattern import matcher
from penstock.broker.policies.policy import ALL, CLASSIC_QUEUES, EXCHANGES, QUEUES, QUORUM_QUEUES, Policy
from penstock.broker.policies.policy_keys import NOT_FOR_CLASSIC, NOT_FOR_QUORUM

if TYPE_CHECKING:
    from penstock.fields import Table

_CLASSIC: Final = (ALL, QUEUES, CLASSIC_QUEUES)
_QUORUM: Final = (ALL, QUEUES, QUORUM_QUEUES)
_QUORUM_TYPE: Final = ("S", b"quorum")

Matches = Callable[[str], bool]


class Ranking:
    def __init__(self) -> None:
        self.by_name: dict[str, Policy] = {}
        # With what is asked first: whom they apply to, by the kinds of objects that there are.
        self._of_classic: list[tuple[Policy, Matches]] = []
        self._of_quorum: list[tuple[Policy, Matches]] = []
        self._of_exchanges: list[tuple[Policy, Matches]] = []
        self._matchers: dict[str, Matches] = {}

    def put(self, policy: Policy) -> None:
        self.by_name[policy.name] = policy
        self._rank()

    def remove(self, name: str) -> bool:
        """Return whether there was one."""
        if self.by_name.pop(name, None) is None:
            return False
        self._rank()
        return True

    def ranked(self) -> list[Policy]:
        return sorted(self.by_name.values(), key=lambda policy: (-policy.priority, policy.name))

    def _rank(self) -> None:
        known = self._matchers
        self._matchers = {
            policy.pattern: known.get(policy.pattern) or matcher(policy.pattern) for policy in self.by_name.values()
        }
        ranked = [(policy, self._matchers[policy.pattern]) for policy in self.ranked()]
        self._of_classic = [
            each for each in ranked if each[0].apply_to in _CLASSIC and NOT_FOR_CLASSIC.isdisjoint(each[0].definition)
        ]
        self._of_quorum = [
            each for each in ranked if each[0].apply_to in _QUORUM and NOT_FOR_QUORUM.isdisjoint(each[0].definition)
        ]
        self._of_exchanges = [each for each in ranked if each[0].apply_to in (ALL, EXCHANGES)]

    def for_queue(self, name: str, arguments: Table) -> Policy | None:
        is_quorum = arguments.get("x-queue-type") == _QUORUM_TYPE
        return _first(self._of_quorum if is_quorum else self._of_classic, name)

    def for_exchange(self, name: str) -> Policy | None:
        return _first(self._of_exchanges, name)


def _first(ranked: list[tuple[Policy, Matches]], name: str) -> Policy | None:
    for policy, matches in ranked:
        if matches(name):
            return policy
    return None
