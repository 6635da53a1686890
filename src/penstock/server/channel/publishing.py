"""Publishing: from a basic.publish frame to queues.

A publisher repeats itself. What a publish method frame means (channel, exchange, routing key, targets) is remembered by
the frame's own bytes, and what the properties mean by theirs, until the topology changes. So a run of equal publishes
costs one look into a dict; see `wire/content.scan_run` for the bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.access.permission import WRITE
from penstock.broker.features.held_messages import delays_of, hold_run
from penstock.broker.vhost import direct_reply
from penstock.errors import not_implemented, precondition_failed
from penstock.message import ConfirmToken, Entry, Envelope, Incoming, wire_address
from penstock.queues.queue import Queue
from penstock.wire.content import ContentInfo, read_content, replace_reply_to
from penstock.wire.methods import BasicPublish
from penstock.wire.mixed_run import MixedRoute, plain_envelope

if TYPE_CHECKING:
    from penstock.server.channel.channel import Channel


class Prepared:
    """Messages with certain properties on a certain route: their envelope and where they go."""

    __slots__ = ("envelope", "properties", "queues", "reply_address", "takes_alike", "takes_singly", "version")

    def __init__(
        self, properties: bytes, envelope: Envelope, queues: list[Queue], reply_address: str, version: int
    ) -> None:
        # As the publisher sent them; the envelope's may differ (BCC, reply-to).
        self.properties = properties
        self.envelope = envelope
        self.queues = queues
        # Set when the messages are replies that go straight to a channel.
        self.reply_address = reply_address
        # The topology for which `queues` holds. When the channel's reply address changes, its routes are forgotten.
        self.version = version
        # Whether one of the queues wants messages of one envelope at a time, or single ones. Both change with the
        # topology only.
        self.takes_alike = self.takes_singly = False
        for queue in queues:
            if queue.intake is not None:
                self.takes_alike = self.takes_alike or queue.intake.takes_alike
                self.takes_singly = self.takes_singly or queue.intake.takes_singly

    def living_queues(self) -> list[Queue]:
        """Return the targets that have not been deleted since."""
        return [queue for queue in self.queues if not queue.deleted]


class PublishRoute:
    """What one basic.publish frame means on its connection."""

    __slots__ = (
        "_frame",
        "_mixed",
        "_plain",
        "_queues",
        "_version",
        "channel",
        "exchange",
        "is_delayed",
        "mandatory",
        "prepared",
        "routing_key",
    )

    def __init__(self, channel: Channel, method: BasicPublish, frame: bytes) -> None:
        self.channel = channel
        self.exchange = method.exchange
        self.routing_key = method.routing_key
        self.mandatory = method.mandatory
        # The last properties seen on this route.
        self.prepared: Prepared | None = None
        # Targets that do not depend on the message, for the topology of that version.
        self._queues: list[Queue] | None = None
        self._version = -1
        # Whether the exchange holds messages back; which of them, their headers say.
        self.is_delayed = False
        # The whole basic.publish frame, and what is needed to take runs of it.
        self._frame = frame
        self._mixed: MixedRoute | None = None
        # Where plain messages go, whatever their properties.
        self._plain: Prepared | None = None
        if method.immediate:
            raise not_implemented("immediate=true")
        self._check()

    def mixed_route(self) -> MixedRoute | None:
        """For runs of plain messages; None when where they go depends on more than routing key and x-delay."""
        if self._version != self.channel.connection.vhost.topology_version:
            return None
        if self._queues is None and not self.is_delayed:
            return None
        if self._mixed is None:
            connection = self.channel.connection
            fits_in_frame = connection.frame_bytes_max - limits.FRAME_OVERHEAD_BYTES
            self._mixed = MixedRoute(
                self._frame,
                self.exchange,
                self.routing_key,
                wire_address(self.exchange, self.routing_key),
                fits_in_frame,
                min(fits_in_frame, connection.broker.config.message_bytes_max),
                connection.server.property_shapes,
            )
        return self._mixed

    def plain(self) -> Prepared:
        """Where plain messages go; asked after `mixed_route`, within one read."""
        assert self._queues is not None
        if self._plain is None or self._plain.version != self._version:
            # Each message has an envelope of its own.
            self._plain = Prepared(b"", Envelope(self.exchange, self.routing_key, b""), self._queues, "", self._version)
        return self._plain

    def _check(self) -> None:
        """The exchange must be there, and this user must be allowed to publish to it."""
        connection = self.channel.connection
        connection.rights.require(WRITE, "exchange", self.exchange)
        connection.vhost.check_publish(self.exchange)
        if connection.vhost.is_topic(self.exchange):
            connection.rights.require_topic(WRITE, self.exchange, self.routing_key)

    def prepare(self, properties: bytes) -> Prepared:
        """Envelope and targets for messages with these properties; remembered while nothing changes."""
        prepared = self.prepared
        version = self.channel.connection.vhost.topology_version
        if prepared is not None and prepared.version == version and prepared.properties == properties:
            return prepared
        mixed = self.mixed_route() if self._queues is not None else None
        envelope = None if mixed is None else plain_envelope(mixed, properties)
        if envelope is not None:
            assert self._queues is not None
            prepared = Prepared(properties, envelope, self._queues, "", version)
            self._remember(prepared)
            return prepared
        self._check()
        content = read_content(self.exchange, self.routing_key, properties)
        self._check_user_id(content)
        if content.reply_to == direct_reply.PSEUDO_QUEUE:
            self._replace_reply_to(content)
        prepared = self._route(content, properties, version)
        self._remember(prepared)
        return prepared

    def _remember(self, prepared: Prepared) -> None:
        """Not large properties: routes are many, and those are hardly ever sent twice."""
        self.prepared = prepared if len(prepared.properties) <= limits.REMEMBERED_PROPERTIES_BYTES_MAX else None

    def _route(self, content: ContentInfo, properties: bytes, version: int) -> Prepared:
        vhost = self.channel.connection.vhost
        if self.exchange == "" and self.routing_key.startswith(direct_reply.PREFIX):
            return Prepared(properties, content.envelope, [], self.routing_key, version)
        if content.cc or content.bcc:
            keys = [self.routing_key, *content.cc, *content.bcc]
            if vhost.is_topic(self.exchange):
                for key in keys:
                    self.channel.connection.rights.require_topic(WRITE, self.exchange, key)
            queues = self._routed(keys, content)
        elif self._version == version and self._queues is not None:
            queues = self._queues
        else:
            queues = self._routed([self.routing_key], content)
            self._version = version
            self._queues = None if vhost.route_needs_headers(self.exchange) else queues
            self.is_delayed = vhost.is_delayed(self.exchange)
        return Prepared(properties, content.envelope, queues, "", version)

    def _routed(self, keys: list[str], content: ContentInfo) -> list[Queue]:
        vhost = self.channel.connection.vhost
        queues = vhost.route(self.exchange, keys, content.headers)
        if not queues and vhost.gave_up_routing:
            raise precondition_failed(
                f"routing a message with {len(keys)} routing keys over the bindings of exchange '{self.exchange}' in"
                f" vhost '{vhost.name}' takes too long"
            )
        return queues

    def _check_user_id(self, content: ContentInfo) -> None:
        connection = self.channel.connection
        name = connection.user.name
        if content.user_id is not None and not connection.rights.may_publish_as(content.user_id):
            raise precondition_failed(
                f"user_id property set to '{content.user_id}' but authenticated user was '{name}'"
            )

    def _replace_reply_to(self, content: ContentInfo) -> None:
        address = self.channel.reply_address
        if address is None:
            raise precondition_failed("fast reply consumer does not exist")
        old = content.envelope
        content.envelope = Envelope(
            old.exchange,
            old.routing_key,
            replace_reply_to(old.properties, address),
            old.persistent,
            old.priority,
            old.expiration_ms,
        )


class Publisher:
    """A channel's publishing side: modes, returns, confirms."""

    __deletable__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def close(self) -> None:
        """The channel is closed, and publishes nothing any more."""
        del self._channel

    def publish(self, route: PublishRoute, prepared: Prepared, incoming: Incoming) -> None:
        """Take a run of messages from the client."""
        channel = self._channel
        connection = channel.connection
        connection.published()
        if channel.transaction is not None:
            channel.transaction.published(route, prepared, incoming)
            return
        self.publish_now(route, prepared, incoming)

    def publish_now(
        self, route: PublishRoute, prepared: Prepared, incoming: Incoming, token: ConfirmToken | None = None
    ) -> None:
        """Hand a run to its queues, or back to the publisher."""
        if prepared.takes_alike and incoming.count > 1 and (prepared.takes_singly or incoming.entries is not None):
            for one in incoming.singly():
                self.publish_now(route, prepared, one, token)
            return
        channel = self._channel
        connection = channel.connection
        ledger = channel.confirms
        queues = prepared.queues
        if ledger is not None:
            token = ledger.open_run(incoming.count, len(queues))
            if connection.server.faults.refuse_confirms:
                token.refuse()
                return
        if queues:
            for queue in queues:
                queue.publish(incoming, token, connection)
            connection.feed(queues)
        else:
            self._unrouted(route, prepared, incoming)
            if token is not None:
                token.complete()

    def publish_delayed(self, route: PublishRoute, entries: list[Entry]) -> None:
        """Hold back those that are to wait, as runs. The others, and those of a transaction, go one by one."""
        channel = self._channel
        connection = channel.connection
        delays_ms = delays_of(entries)
        may_hold = channel.transaction is None and not connection.server.faults.refuse_confirms
        start = 0
        while start < len(entries):
            stop = start
            while may_hold and stop < len(entries) and delays_ms[stop] > 0:
                stop += 1
            if stop == start:
                envelope, body, _ = entries[start]
                prepared = route.prepare(envelope.properties)
                self.publish(route, prepared, Incoming(prepared.envelope, [body]))
                start += 1
                continue
            connection.published()
            token: ConfirmToken | None = None
            if channel.confirms is not None:
                token = channel.confirms.open_run(stop - start, 1)
            queue = connection.vhost.holding_queue(route.exchange)
            hold_run(queue, entries[start:stop], delays_ms[start:stop], token)
            connection.feed([queue])
            start = stop

    def _unrouted(self, route: PublishRoute, prepared: Prepared, incoming: Incoming) -> None:
        channel = self._channel
        if prepared.reply_address:
            receiver = channel.connection.broker.direct_replies.receiver(prepared.reply_address)
            if receiver is not None:
                receiver.receive_replies(incoming.envelope, incoming.bodies)
                return
        if route.mandatory:
            for envelope, body, _ in incoming.entries_with(None):
                channel.send_return(envelope, body)
