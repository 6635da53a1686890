"""One channel: calls in flight, confirms owed, messages that have come.

AMQP answers the calls of a channel in the order in which they were made. A call returns an `Answer` to wait for. When
either side has closed the channel, `failure` says why, and everything that was waiting has it as its error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import RLock
from typing import Final

from penstock.client.amqp.answer import Answer
from penstock.client.amqp.delivery import Assembly, Delivery
from penstock.client.amqp.refused import Refused
from penstock.client.errors import ClientError, Closed, ConnectionLost
from penstock.errors import command_invalid, resource_error, unexpected_frame
from penstock.limits import FRAME_OVERHEAD_BYTES
from penstock.wire import frames, methods

# Which methods answer which. A call with no-wait is sent, not called.
REPLIES: Final[dict[type[methods.Method], tuple[type[methods.Method], ...]]] = {
    methods.ChannelOpen: (methods.ChannelOpenOk,),
    methods.ChannelClose: (methods.ChannelCloseOk,),
    methods.ConfirmSelect: (methods.ConfirmSelectOk,),
    methods.QueueDeclare: (methods.QueueDeclareOk,),
    methods.QueueDelete: (methods.QueueDeleteOk,),
    methods.QueueBind: (methods.QueueBindOk,),
    methods.BasicQos: (methods.BasicQosOk,),
    methods.BasicConsume: (methods.BasicConsumeOk,),
    methods.BasicCancel: (methods.BasicCancelOk,),
    methods.BasicGet: (methods.BasicGetOk, methods.BasicGetEmpty),
}


class Channel:
    def __init__(self, number: int, frame_bytes_max: int, write: Callable[[bytes], None], lock: RLock) -> None:
        self.number = number
        # The connection's: threads may call while another one feeds.
        self._lock = lock
        self.failure: ClientError | None = None
        # Messages that came by basic.deliver and were not taken yet.
        self.deliveries: deque[Delivery] = deque()
        # How many of them the broker may send: what basic.qos said.
        self.window = 0
        self.consumer_tag: str | None = None
        self.is_closing = False
        self._frame_bytes_max = frame_bytes_max
        self._write = write
        self._calls: deque[Answer] = deque()
        self._confirms: dict[int, Answer] = {}
        self._published = 0
        self._assembly: Assembly | None = None

    def send(self, method: methods.Method) -> None:
        """Send a method that is not answered. On a channel that is closed it goes nowhere."""
        with self._lock:
            if self.failure is None:
                self._write(frames.method_frame(self.number, method.encode()))

    def call(self, method: methods.Method) -> Answer:
        """Send a method that is answered."""
        answer = Answer(REPLIES[type(method)])
        with self._lock:
            if self.failure is not None:
                answer.fail(self.failure)
            else:
                self._calls.append(answer)
                self.send(method)
        return answer

    def publish(self, exchange: str, routing_key: str, properties: bytes, body: bytes, message_id: str) -> Answer:
        """Publish a message, mandatory. The channel is in confirm mode, and the answer is the confirm."""
        answer = Answer(message_id=message_id)
        size = frames.CONTENT_HEADER_BYTES + len(properties) + FRAME_OVERHEAD_BYTES
        if size > self._frame_bytes_max:
            raise ClientError(f"the properties of a message take {size} bytes; a frame has {self._frame_bytes_max}")
        content = frames.content_frames(self.number, properties, body + b"\xce", self._frame_bytes_max)
        with self._lock:
            if self.failure is not None:
                answer.fail(self.failure)
            else:
                self._published += 1
                self._confirms[self._published] = answer
                self.send(methods.BasicPublish(exchange, routing_key, mandatory=True))
                self._write(content)
        return answer

    def close(self) -> Answer:
        """Close it. Nothing that still comes on it is looked at."""
        with self._lock:
            answer = self.call(methods.ChannelClose(200, "OK"))
            self.is_closing = True
        return answer

    def fail(self, error: ClientError) -> None:
        """Close the channel: all that wait for something get the reason."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = error
            for answer in (*self._calls, *self._confirms.values()):
                answer.fail(error)
            self._calls.clear()
            self._confirms.clear()
            self.deliveries.clear()
            self._assembly = None

    def on_method(self, method: methods.Method) -> None:
        """Any method but one of class connection. Raises what the broker must not do."""
        if isinstance(method, methods.ChannelClose):
            self.send(methods.ChannelCloseOk())
            if self.is_closing:
                # The two closes have met on the way; ours is answered all the same.
                return
            # Without a method it is no answer to anything: a reservation that took too long, for example.
            is_answer = method.class_id != 0
            words = f"the broker says {method.reply_text}"
            self.fail(Refused(words, method.reply_code) if is_answer else ConnectionLost(words))
        elif isinstance(method, methods.ChannelCloseOk) and self.is_closing:
            # It answers the last call, whether or not the ones before it were answered.
            self._calls[-1].succeed(method)
            self._calls.pop()
            self.fail(Closed("the channel is closed"))
        elif self.is_closing:
            return
        elif self._assembly is not None:
            raise unexpected_frame(f"{method.NAME} in the middle of a message")
        elif isinstance(method, methods.BasicDeliver | methods.BasicGetOk | methods.BasicReturn):
            self._assembly = Assembly(method)
        elif isinstance(method, methods.BasicAck | methods.BasicNack):
            self._confirm(method)
        elif isinstance(method, methods.BasicCancel):
            self._cancelled(method)
        elif isinstance(method, methods.ChannelFlow):
            self.send(methods.ChannelFlowOk(method.active))
        else:
            self._reply(method, None)

    def on_header(self, payload: bytes) -> None:
        if self._assembly is not None:
            self._finish(self._assembly.header(payload))
        elif not self.is_closing:
            raise unexpected_frame("a content header without a message")

    def on_body(self, payload: bytes) -> None:
        if self._assembly is not None:
            self._finish(self._assembly.body(payload))
        elif not self.is_closing:
            raise unexpected_frame("a body frame without a message")

    def _finish(self, delivery: Delivery | None) -> None:
        if delivery is None:
            return
        self._assembly = None
        if self.is_closing:
            return
        method = delivery.method
        if isinstance(method, methods.BasicGetOk):
            self._reply(method, delivery)
        elif isinstance(method, methods.BasicReturn):
            self._returned(method, delivery)
        elif len(self.deliveries) >= self.window:
            raise resource_error(f"more than the {self.window} messages that were asked for")
        else:
            self.deliveries.append(delivery)

    def _reply(self, method: methods.Method, delivery: Delivery | None) -> None:
        if not self._calls or type(method) not in self._calls[0].expected:
            raise command_invalid(f"{method.NAME}, which nobody has asked for")
        self._calls.popleft().succeed(method, delivery)

    def _cancelled(self, method: methods.BasicCancel) -> None:
        if not method.no_wait:
            self.send(methods.BasicCancelOk(method.consumer_tag))
        if method.consumer_tag == self.consumer_tag:
            self.consumer_tag = None

    def _confirm(self, method: methods.BasicAck | methods.BasicNack) -> None:
        tag = method.delivery_tag
        if not method.multiple:
            tags = [tag] if tag in self._confirms else []
        elif tag == 0:
            tags = list(self._confirms)
        else:
            tags = []
            for number in self._confirms:
                if number > tag:
                    break
                tags.append(number)
        for number in tags:
            answer = self._confirms.pop(number)
            if answer.error is not None:
                answer.is_done = True
            elif isinstance(method, methods.BasicAck):
                answer.succeed()
            else:
                answer.fail(Refused("the broker has refused the message (basic.nack)"))

    def _returned(self, method: methods.BasicReturn, delivery: Delivery) -> None:
        """The confirm follows; until then the answer is not done."""
        for answer in self._confirms.values():
            if answer.error is None and answer.message_id == (delivery.properties.message_id or ""):
                words = f"there is no queue {method.routing_key!r} for the message ({method.reply_text})"
                answer.error = Refused(words, method.reply_code)
                return
