"""Valid sessions to begin with: what a client may say after the handshake, in a random order that makes sense.

Queues are exclusive, so that an honest server forgets them with the connection. The writer keeps book of what it has
declared and fetched, so that most steps succeed; now and then it errs, as clients do.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.fields import Field, Table
from penstock.wire import frames, methods
from penstock.wire.methods import Method
from penstock.wire.properties import Properties

from .client_frames import Frame, method, publish

EXCHANGES = ("x0", "x1")
TYPES = ("direct", "fanout", "topic", "headers")
KEYS = ("", "q0", "q0", "q1", "q2", "a.b", "a.#", "*.b", "k")
BODY_SIZES = (0, 1, 2, 7, 8, 20, 100, 206, 1000, 5000)
PUBLISH_FRAME = publish(1, "", "q0", b"")[0].encode()
PLAIN, CONFIRM, TX = "plain", "confirm", "tx"


class ChannelBook:
    """What the client knows about one of its channels."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.mode = PLAIN
        self.consumer_tags: list[str] = []
        # Deliveries that were fetched and not settled, if nothing else came in between.
        self.fetched: list[int] = []
        self.last_tag = 0


class SessionWriter:
    """Writes one session, step by step, with one source of chance."""

    def __init__(self, random: Random, timeless: bool = False) -> None:
        """`timeless`: nothing expires, so that the session means the same however long it takes."""
        self.random = random
        self.timeless = timeless
        self.channels: dict[int, ChannelBook] = {}
        self.queues: dict[str, methods.QueueDeclare] = {}
        self.sent: list[Frame] = []

    def write(self, steps: int) -> list[Frame]:
        """The whole session without its handshake."""
        self.open_channel()
        self._declare("q0", {})
        for _ in range(steps):
            self.random.choice(STEPS)(self)
        return self.sent

    # --- channels and modes -------------------------------------------------------------------------------

    def open_channel(self) -> None:
        number = self.random.choice([1, 2, 3, 7, 255, 2047])
        if number not in self.channels:
            self.channels[number] = ChannelBook(number)
            self.sent.append(method(number, methods.ChannelOpen()))

    def close_channel(self) -> None:
        if len(self.channels) > 1:
            number, _ = self.channels.popitem()
            self.sent.append(method(number, methods.ChannelClose(200, "done", 0, 0)))

    def select_mode(self) -> None:
        channel = self._channel()
        if channel.mode == PLAIN:
            channel.mode = self.random.choice([CONFIRM, TX])
            chosen = methods.ConfirmSelect(self._rarely()) if channel.mode == CONFIRM else methods.TxSelect()
            self._say(chosen, channel)

    def end_transaction(self) -> None:
        channel = self._channel()
        if channel.mode == TX or self._rarely():
            self._say(methods.TxCommit() if self._half() else methods.TxRollback(), channel)

    def set_quality(self) -> None:
        self._say(methods.BasicQos(0, self.random.choice([0, 1, 2, 10, 65535]), self._half()))

    def heartbeat(self) -> None:
        self.sent.append(Frame(frames.HEARTBEAT, 0, b""))

    # --- topology -----------------------------------------------------------------------------------------

    def declare_queue(self) -> None:
        name = self.random.choice(["q0", "q1", "q2", ""])
        known = self.queues.get(name)
        if known is None or name == "":
            self._declare(name, self._arguments())
        elif self._half():
            self._say(known)
        else:
            self._say(methods.QueueDeclare(name, passive=True))

    def _declare(self, name: str, arguments: Table) -> None:
        declaration = methods.QueueDeclare(
            name, exclusive=True, auto_delete=self._rarely(), no_wait=self._rarely(), arguments=arguments
        )
        if name:
            self.queues[name] = declaration
        self._say(declaration)

    def delete_queue(self) -> None:
        if self._rarely():
            self._say(methods.QueueDelete(self._queue(), self._rarely(), self._rarely(), self._rarely()))
        else:
            self._say(methods.QueuePurge(self._queue(), self._rarely()))

    def declare_exchange(self) -> None:
        kind = self.random.choice(TYPES)
        name = f"{self.random.choice(EXCHANGES)}-{kind}"
        self._say(methods.ExchangeDeclare(name, kind, auto_delete=kind == "fanout", no_wait=self._rarely()))

    def bind(self) -> None:
        random = self.random
        source = random.choice(["amq.direct", "amq.fanout", "amq.topic", "amq.headers"])
        key = random.choice(KEYS)
        arguments: Table = {"x-match": ("S", b"any"), "a": ("I", 1)} if source == "amq.headers" else {}
        if random.random() < 0.3:
            self._say(methods.QueueUnbind(self._queue(), source, key, arguments))
        else:
            self._say(methods.QueueBind(self._queue(), source, key, self._rarely(), arguments))

    def bind_exchange(self) -> None:
        source, destination = self.random.sample(["amq.direct", "amq.fanout", "amq.topic"], 2)
        make = methods.ExchangeBind if self._half() else methods.ExchangeUnbind
        self._say(make(destination, source, self.random.choice(KEYS)))

    # --- publishing ---------------------------------------------------------------------------------------

    def publish_one(self) -> None:
        self.sent += self._message(self._channel())

    def publish_run(self) -> None:
        """Equal but for the bodies: what the reader takes in one go."""
        random = self.random
        size = random.choice(BODY_SIZES)
        number, exchange, key = self._channel().number, self._exchange(), random.choice(KEYS)
        mandatory = self._rarely()
        for _ in range(random.randint(2, 12)):
            self.sent += publish(number, exchange, key, self._body(size), mandatory=mandatory)

    def publish_interleaved(self) -> None:
        """Messages on two channels whose frames take turns."""
        if len(self.channels) < 2:
            return
        first, second = self.random.sample(list(self.channels.values()), 2)
        left, right = self._message(first), self._message(second)
        while left or right:
            take_from = left if left and (not right or self._half()) else right
            self.sent.append(take_from.pop(0))

    def ask_directly(self) -> None:
        """Direct reply-to: a request and, to the wrong address, a reply."""
        channel = self._channel()
        if "r" not in channel.consumer_tags:
            channel.consumer_tags.append("r")
            self._say(methods.BasicConsume("amq.rabbitmq.reply-to", "r", False, True), channel)
        self.sent += publish(channel.number, "", "q0", b"request", Properties(reply_to="amq.rabbitmq.reply-to"))
        self.sent += publish(channel.number, "", "amq.rabbitmq.reply-to.nobody", b"reply")

    # --- consuming ----------------------------------------------------------------------------------------

    def consume(self) -> None:
        channel = self._channel()
        tag = f"t{len(channel.consumer_tags)}"
        channel.consumer_tags.append(tag)
        arguments: Table = {}
        if self._rarely():
            arguments = {"x-priority": ("I", self.random.randint(-3, 3))}
        elif self._rarely():
            arguments = {"x-browse": ("t", True)}
        no_ack, exclusive = self._half(), self._rarely() and self._rarely()
        self._say(
            methods.BasicConsume(self._queue(), tag, False, no_ack, exclusive, self._rarely(), arguments), channel
        )

    def cancel(self) -> None:
        channel = self._channel()
        if channel.consumer_tags:
            tag = channel.consumer_tags.pop(self.random.randrange(len(channel.consumer_tags)))
            self._say(methods.BasicCancel(tag, self._rarely()), channel)

    def get(self) -> None:
        self._say(methods.BasicGet(self._queue(), True))

    def fetch(self) -> None:
        """Messages through a queue of the channel's own, to be settled later."""
        channel = self._channel()
        if channel.mode == TX:
            return
        name = f"own{channel.number}"
        if name not in self.queues:
            self.queues[name] = declaration = methods.QueueDeclare(name, exclusive=True)
            self._say(declaration, channel)
        for _ in range(self.random.randint(1, 5)):
            self.sent += publish(channel.number, "", name, b"fetched")
            self._say(methods.BasicGet(name, False), channel)
            channel.last_tag += 1
            channel.fetched.append(channel.last_tag)

    def settle(self) -> None:
        channel = self._channel()
        if not channel.fetched and not self._rarely():
            return
        tag = self.random.choice(channel.fetched or [0, 1, 2**63])
        multiple = self._half()
        reject = methods.BasicReject(tag, self._half())
        nack = methods.BasicNack(tag, multiple, self._half())
        said = self.random.choice([methods.BasicAck(tag, multiple), nack, reject])
        channel.fetched = [each for each in channel.fetched if each > tag or (each < tag and said is reject)]
        if not multiple and channel.mode != TX:
            channel.fetched = [each for each in channel.fetched if each != tag]
        self._say(said, channel)

    def ack_run(self) -> None:
        channel = self._channel()
        for tag in channel.fetched:
            self._say(methods.BasicAck(tag, False), channel)
        channel.fetched = []

    def recover(self) -> None:
        channel = self._channel()
        channel.fetched = []
        self._say(methods.BasicRecover(True) if self._half() else methods.BasicRecoverAsync(True), channel)

    # --- parts of steps -----------------------------------------------------------------------------------

    def _say(self, said: Method, channel: ChannelBook | None = None) -> None:
        self.sent.append(method((channel or self._channel()).number, said))

    def _channel(self) -> ChannelBook:
        return self.random.choice(list(self.channels.values()))

    def _queue(self) -> str:
        return "q0" if self.random.random() < 0.7 else self.random.choice(list(self.queues))

    def _exchange(self) -> str:
        return self.random.choice(["", "", "", "amq.direct", "amq.fanout", "amq.topic", "amq.headers"])

    def _message(self, channel: ChannelBook) -> list[Frame]:
        random = self.random
        return publish(
            channel.number,
            self._exchange(),
            random.choice(KEYS),
            self._body(random.choice(BODY_SIZES)),
            self._properties(),
            self._rarely(),
            random.choice([0, 0, 0, 1000, 4096]),
        )

    def _body(self, size: int) -> bytes:
        """Often made of what a careless reader would take for frames."""
        random = self.random
        filler = random.choice([b"\xce", PUBLISH_FRAME, b"\x03\x00\x01", b"\x00", random.randbytes(16)])
        return (filler * (size // len(filler) + 1))[:size]

    def _properties(self) -> Properties | None:
        random = self.random
        if self._half():
            return None
        return Properties(
            content_type=random.choice([None, "", "text/plain"]),
            headers=random.choice([None, {}, {"a": ("I", 1)}, {"CC": ("A", [("S", b"q1")]), "BCC": ("A", [])}]),
            delivery_mode=random.choice([None, 1, 2]),
            priority=random.choice([None, 0, 9, 255]),
            expiration=random.choice([None, "3600000"] if self.timeless else [None, "60000", "0", "1"]),
            user_id=random.choice([None, "guest"]),
        )

    def _arguments(self) -> Table:
        if self.random.random() < 0.7:
            return {}
        names = ["x-max-length", "x-max-priority", "x-mine"]
        if not self.timeless:
            names += ["x-message-ttl", "x-expires"]
        field: Field = self.random.choice([("I", 5), ("l", 60_000), ("B", 9)])
        return {self.random.choice(names): field}

    def _half(self) -> bool:
        return self.random.random() < 0.5

    def _rarely(self) -> bool:
        return self.random.random() < 0.1


STEPS: list[Callable[[SessionWriter], None]] = [
    SessionWriter.open_channel,
    SessionWriter.close_channel,
    SessionWriter.select_mode,
    SessionWriter.end_transaction,
    SessionWriter.set_quality,
    SessionWriter.heartbeat,
    SessionWriter.declare_queue,
    SessionWriter.delete_queue,
    SessionWriter.declare_exchange,
    SessionWriter.bind,
    SessionWriter.bind_exchange,
    SessionWriter.publish_one,
    SessionWriter.publish_one,
    SessionWriter.publish_run,
    SessionWriter.publish_run,
    SessionWriter.publish_interleaved,
    SessionWriter.ask_directly,
    SessionWriter.consume,
    SessionWriter.cancel,
    SessionWriter.get,
    SessionWriter.fetch,
    SessionWriter.fetch,
    SessionWriter.settle,
    SessionWriter.ack_run,
    SessionWriter.recover,
]
