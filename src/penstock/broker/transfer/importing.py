"""Importing definitions: everything is checked first, then all of it is made, or nothing.

The journal gathers while the changes are made, over as many turns as they take, and writes them as one batch: a crash
finds all of them or none. Should one be refused although the checks had found nothing (a client has declared something
meanwhile, a limit is reached), those before it are taken back.

What is there already stays as it is, as in RabbitMQ: a queue or exchange of the same name with other properties is not
changed, and is named in the result. Users, permissions, policies and parameters are replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.access.access_error import BadAccess
from penstock.broker.access.user import User
from penstock.broker.definitions import arguments as args
from penstock.broker.operations.call_errors import BadRequest, CallError
from penstock.broker.transfer import import_plan as plan
from penstock.broker.transfer.import_plan import ImportPlan, Wanted
from penstock.broker.transfer.sections import SECTIONS, Entry
from penstock.broker.transfer.undo import Undo
from penstock.errors import AmqpError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Import:
    def __init__(self, broker: Broker, sections: dict[str, list[Entry]]) -> None:
        self._broker = broker
        self._sections = sections
        self._undo = Undo()
        # What was made, by section; and what was there with other properties.
        self.made: Counter[str] = Counter()
        self.different: list[str] = []

    def result(self) -> dict[str, Any]:
        return {"made": dict(self.made), "different": self.different}

    def steps(self) -> Iterator[None]:
        """Import; the caller may let others work between two steps. Raises CallError, and then nothing has changed."""
        wanted: list[tuple[str, Entry, Wanted]] = []
        checking = ImportPlan(self._broker)
        for section in SECTIONS:
            for entry in self._sections.get(section, ()):
                each = checking.read(section, entry)
                if each is not None:
                    wanted.append((section, entry, each))
                yield
        node = self._broker.node
        if node is not None:
            node.journal.hold()
        try:
            for section, entry, each in wanted:
                self._make_or_take_back(section, entry, each)
                yield
        except GeneratorExit:
            # The broker stops in the middle of it.
            self._undo.run()
            raise
        finally:
            if node is not None:
                node.journal.release()

    def _make_or_take_back(self, section: str, entry: Entry, wanted: Wanted) -> None:
        try:
            if self._make(wanted):
                self.made[section] += 1
        except (AmqpError, BadAccess, CallError) as error:
            self._undo.run()
            text = error.reply_text if isinstance(error, AmqpError) else str(error)
            raise BadRequest(f"{entry.where} cannot be made: {text}. Nothing was imported.") from error
        except BaseException:
            self._undo.run()
            raise

    def _make(self, wanted: Wanted) -> bool:
        """Make it; return False when it was there already."""
        match wanted:
            case plan.WantedVHost():
                return self._make_vhost(wanted)
            case User():
                return self._put_user(wanted)
            case plan.WantedPermission():
                self._set_permission(wanted)
            case plan.WantedTopicPermission():
                self._set_topic_permission(wanted)
            case plan.WantedParameter():
                self._set_parameter(wanted)
            case plan.WantedLimits():
                self._set_limits(wanted)
            case plan.WantedPolicy():
                self._set_policy(wanted)
            case plan.WantedExchange():
                return self._make_exchange(wanted)
            case plan.WantedQueue():
                return self._make_queue(wanted)
            case plan.WantedBinding():
                return self._bind(wanted)
        return True

    def _make_vhost(self, wanted: plan.WantedVHost) -> bool:
        if wanted.name in self._broker.vhosts:
            return False
        self._broker.add_vhost(wanted.name, wanted.description, wanted.tags)
        self._undo.add(partial(self._broker.delete_vhost, wanted.name))
        return True

    def _put_user(self, user: User) -> bool:
        users = self._broker.users
        default, before = users.default_user(), users.get(user.name)
        if before is not None and before is not default and users.is_configured(user.name):
            self._note_difference(f"user '{user.name}' of the configuration", False)
            return False
        users.put(user)
        if default is not None and users.default_user() is None:
            # Another administrator has come, or the default user has become one like any other.
            self._undo.add(partial(users.restore_default, default))
        if before is None or before is default:
            self._undo.add(partial(users.delete, user.name))
        else:
            self._undo.add(partial(users.put, before))
        return True

    def _set_permission(self, wanted: plan.WantedPermission) -> None:
        users = self._broker.users
        before = users.permission(wanted.user, wanted.vhost)
        users.set_permission(*wanted)
        if before is None:
            self._undo.add(partial(users.clear_permission, wanted.user, wanted.vhost))
        else:
            self._undo.add(partial(users.set_permission, wanted.user, wanted.vhost, before))

    def _set_topic_permission(self, wanted: plan.WantedTopicPermission) -> None:
        users = self._broker.users
        before = users.topic_permission(wanted.user, wanted.vhost, wanted.exchange)
        users.set_topic_permission(*wanted)
        if before is None:
            self._undo.add(partial(users.clear_topic_permissions, wanted.user, wanted.vhost, wanted.exchange))
        else:
            self._undo.add(partial(users.set_topic_permission, wanted.user, wanted.vhost, wanted.exchange, before))

    def _set_parameter(self, wanted: plan.WantedParameter) -> None:
        if wanted.vhost is None:
            values = self._broker.global_parameters
            is_new, before = wanted.name not in values.values, values.values.get(wanted.name)
            values.put(wanted.name, wanted.value)
            self._undo.add(partial(values.clear, wanted.name) if is_new else partial(values.put, wanted.name, before))
            return
        policies = self._broker.vhosts[wanted.vhost].policies
        key = (wanted.component, wanted.name)
        is_new, before = key not in policies.parameters, policies.parameters.get(key)
        policies.set_parameter(*key, wanted.value)
        undo = partial(policies.clear_parameter, *key) if is_new else partial(policies.set_parameter, *key, before)
        self._undo.add(undo)

    def _set_limits(self, wanted: plan.WantedLimits) -> None:
        vhost = self._broker.vhosts[wanted.vhost]
        before = dict(vhost.limits)
        self._broker.set_vhost_limits(vhost, wanted.limits)
        self._undo.add(partial(vhost.set_limits, before))

    def _set_policy(self, wanted: plan.WantedPolicy) -> None:
        policies = self._broker.vhosts[wanted.vhost].policies
        before = policies.ranking(wanted.is_operator).by_name.get(wanted.policy.name)
        policies.put(wanted.policy, wanted.is_operator, _nothing)
        if before is None:
            self._undo.add(partial(policies.clear, wanted.policy.name, wanted.is_operator, _nothing))
        else:
            self._undo.add(partial(policies.put, before, wanted.is_operator, _nothing))

    def _make_exchange(self, wanted: plan.WantedExchange) -> bool:
        vhost = self._broker.vhosts[wanted.vhost]
        there = vhost.exchanges.get(wanted.name)
        if there is not None:
            same = (there.type_name, there.durable, there.auto_delete, there.internal) == wanted[2:6]
            self._note_difference(f"exchange '{wanted.name}' in vhost '{wanted.vhost}'", same)
            return False
        vhost.declare_exchange(*wanted[1:])
        self._undo.add(partial(vhost.delete_exchange, wanted.name, False))
        return True

    def _make_queue(self, wanted: plan.WantedQueue) -> bool:
        vhost = self._broker.vhosts[wanted.vhost]
        there = vhost.queues.get(wanted.name)
        if there is not None:
            same = (there.durable, there.auto_delete) == (wanted.durable, wanted.auto_delete)
            try:
                args.check_equal_arguments(args.COMPARED_QUEUE_ARGUMENTS, "", wanted.arguments, there.arguments)
            except AmqpError:
                same = False
            self._note_difference(f"queue '{wanted.name}' in vhost '{wanted.vhost}'", same)
            return False
        queue = vhost.declare_queue(wanted.name, wanted.durable, wanted.auto_delete, None, wanted.arguments)
        self._undo.add(partial(vhost.delete_queue, queue, False, False))
        return True

    def _bind(self, wanted: plan.WantedBinding) -> bool:
        vhost = self._broker.vhosts[wanted.vhost]
        binding = wanted.binding
        if vhost.is_bound(binding):
            return False
        vhost.bind(binding)
        self._undo.add(partial(vhost.unbind, binding))
        return True

    def _note_difference(self, described: str, is_same: bool) -> None:
        if not is_same:
            self.different.append(described)


def _nothing() -> None:
    return None
