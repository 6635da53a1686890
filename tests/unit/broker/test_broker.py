"""The broker as a whole: vhosts and users from its settings, alarms, direct replies."""

from __future__ import annotations

from collections.abc import Sequence

from vhost_house import Connection

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.memory.alarms import CLEAR_SHARE, MemoryAlarm
from penstock.broker.vhost.direct_reply import PREFIX, DirectReplies, ReplyReceiver
from penstock.clock import ManualClock
from penstock.config import Config, UserConfig
from penstock.message import Envelope, Incoming


def test_vhosts_and_users_come_from_the_settings() -> None:
    users = [UserConfig("ann", "a"), UserConfig("bob", "b")]
    broker = Broker(Config(vhosts=["/", "other"], users=users), ManualClock())
    assert set(broker.vhosts) == {"/", "other"}
    for name, password in (("ann", b"a"), ("bob", b"b")):
        user = broker.users.authenticate(name, password)
        assert user is not None
        assert user.is_administrator
        for vhost in broker.vhosts:
            permission = broker.users.permission(name, vhost)
            assert permission is not None
            assert permission.allows_everything()
    assert broker.users.authenticate("guest", b"guest") is None


def test_vhosts_share_nothing_but_the_clock() -> None:
    broker = Broker(Config(vhosts=["/", "other"]), ManualClock())
    broker.vhosts["/"].declare_queue("q", False, False, None, {})
    assert broker.vhosts["other"].queues == {}


def test_a_connection_that_closes_takes_its_queues_along_in_every_vhost() -> None:
    broker = Broker(Config(vhosts=["/", "other"]), ManualClock())
    owner = Connection()
    for vhost in broker.vhosts.values():
        vhost.declare_queue("q", False, False, owner, {})
    broker.connection_closed(owner)
    assert [vhost.queues for vhost in broker.vhosts.values()] == [{}, {}]


def test_the_memory_of_all_vhosts_counts() -> None:
    broker = Broker(Config(vhosts=["/", "other"]), ManualClock())
    for vhost in broker.vhosts.values():
        queue = vhost.declare_queue("q", False, False, None, {})
        queue.publish(Incoming(Envelope("", "q", b"\x00\x00"), [b"x" * 100 + b"\xce"]), None)
    assert broker.ram_bytes() == 2 * (100 + limits.MESSAGE_OVERHEAD_BYTES)


# --- the memory alarm -----------------------------------------------------------------------------------


def test_the_memory_alarm_goes_on_above_the_limit_and_off_well_below_it() -> None:
    used = 0

    def measured() -> int:
        return used

    alarm = MemoryAlarm(1000, measured)
    found = []
    for used in (0, 1000, 1001, 950, int(1000 * CLEAR_SHARE) + 1, int(1000 * CLEAR_SHARE), 1000, 2000):
        changed = alarm.check()
        found.append((used, changed, alarm.active))
    assert found == [
        (0, False, False),
        (1000, False, False),
        (1001, True, True),
        (950, False, True),
        (901, False, True),
        (900, True, False),
        (1000, False, False),
        (2000, True, True),
    ]


# --- direct replies -------------------------------------------------------------------------------------


class Requester(ReplyReceiver):
    def receive_replies(self, envelope: Envelope, bodies: Sequence[bytes]) -> None:
        pass


def test_a_reply_address_leads_to_its_receiver_until_it_is_closed() -> None:
    replies = DirectReplies()
    first, second = Requester(), Requester()
    addresses = [replies.open(first), replies.open(second)]
    assert [replies.receiver(address) for address in addresses] == [first, second]
    replies.close(addresses[0])
    replies.close(addresses[0])
    assert [replies.receiver(address) for address in addresses] == [None, second]
    assert replies.receiver("amq.rabbitmq.reply-to") is None


def test_reply_addresses_cannot_be_guessed_from_each_other() -> None:
    replies = DirectReplies()
    addresses = [replies.open(Requester()) for _ in range(200)]
    secret_parts = [address.removeprefix(PREFIX) for address in addresses]
    assert all(address.startswith(PREFIX) for address in addresses)
    assert len(set(secret_parts)) == 200
    assert min(map(len, secret_parts)) >= 32
    # As routing keys they are short strings.
    assert max(map(len, addresses)) <= limits.SHORT_STRING_BYTES_MAX
