"""Publishing: routing to nowhere, mandatory, immediate, properties, user-id, expiration, CC and BCC."""

from __future__ import annotations

from ..session import Session, script
from ..wire_values import Typed

ALL_PROPERTIES = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"a": 1, "b": "two", "c": [True, None, 1.5], "d": {"e": b"\x00\x01"}},
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "corr",
    "reply_to": "somewhere",
    "expiration": "60000",
    "message_id": "id-1",
    "timestamp": 2**63 - 1,
    "message_type": "greeting",
    "user_id": "guest",
    "app_id": "script",
    "cluster_id": "c",
}


@script("a message reaches its queue through the default exchange with all its properties")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("hello", "q", properties=ALL_PROPERTIES)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("an empty body is a message too")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("", "q")
    ch.publish("", "q", properties={"delivery_mode": 1})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
    ch.call("basic.consume", queue="q", consumer_tag="t", no_ack=True)


@script("publishing to an unknown exchange closes the channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("lost", "k", "nowhere")
    ch.expect_close()


@script("an unroutable message without mandatory is dropped silently")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("lost", "nowhere")
    s.settle()


@script("an unroutable mandatory message comes back with its properties")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("back", "nowhere", mandatory=True, properties=ALL_PROPERTIES)
    ch.publish("", "k", "amq.direct", mandatory=True)
    s.settle()


@script("a routed mandatory message does not come back")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("arrives", "q", mandatory=True)
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("the immediate flag is not implemented")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("now", "q", immediate=True)
    ch.expect_close()


@script("a user-id that is the login is accepted")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("mine", "q", properties={"user_id": "guest"})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("a user-id that is not the login closes the channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("not mine", "q", properties={"user_id": "someone"})
    ch.expect_close()


@script("an expiration that is no number closes the channel")
def _(s: Session) -> None:
    wire = s.connect()
    for number, value in enumerate(("soon", "", "-1", "1.5", "1e3", " 5", "12x", "0x10", "4294967296"), 1):
        ch = wire.channel(number)
        ch.publish("never", "nowhere", properties={"expiration": value})
        ch.barrier()


@script("an expiration may have a sign and leading zeros and be as large as 32 bits")
def _(s: Session) -> None:
    wire = s.connect()
    for number, value in enumerate(("+5", "0005", "4294967295", "0"), 1):
        ch = wire.channel(number)
        ch.publish("never", "nowhere", properties={"expiration": value})
        ch.barrier()


@script("a channel error in publishing is noticed after the whole content")
def _(s: Session) -> None:
    ch = s.channel()
    ch.send("basic.publish", exchange="nowhere", routing_key="k")
    ch.wire.channel(2).barrier()
    s.note("the method alone is not answered")
    ch.wire.send_content(1, b"body")
    ch.expect_close()


@script("CC sends copies to more keys and stays in the headers")
def _(s: Session) -> None:
    ch = s.channel()
    for queue in ("q", "q2", "q3"):
        ch.call("queue.declare", queue=queue)
    ch.publish("copies", "q", properties={"headers": {"CC": ["q2", "q3", "nowhere"], "other": 1}})
    s.settle()
    for queue in ("q", "q2", "q3"):
        ch.call("basic.get", queue=queue, no_ack=True)


@script("BCC sends copies to more keys and is taken out of the headers")
def _(s: Session) -> None:
    ch = s.channel()
    for queue in ("q", "q2", "q3"):
        ch.call("queue.declare", queue=queue)
    ch.publish("copies", "q", properties={"headers": {"x": "first", "BCC": ["q2"], "CC": ["q3"], "y": 2}})
    s.settle()
    for queue in ("q", "q2", "q3"):
        ch.call("basic.get", queue=queue, no_ack=True)


@script("BCC alone leaves an empty header table behind")
def _(s: Session) -> None:
    ch = s.channel()
    for queue in ("q", "q2"):
        ch.call("queue.declare", queue=queue)
    ch.publish("copies", "q", properties={"headers": {"BCC": ["q2"]}})
    s.settle()
    for queue in ("q", "q2"):
        ch.call("basic.get", queue=queue, no_ack=True)


@script("a queue reached by key and by CC gets one copy")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("once", "q", properties={"headers": {"CC": ["q", "q"]}})
    s.count(ch, "q")


@script("CC is enough to route a mandatory message")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    ch.publish("by CC", "nowhere", mandatory=True, properties={"headers": {"CC": ["q"]}})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)


@script("CC that is not an array closes the channel")
def _(s: Session) -> None:
    wire = s.connect()
    for number, value in enumerate(("q", 5, {"a": "b"}, True, None), 1):
        ch = wire.channel(number)
        ch.publish("no", "nowhere", properties={"headers": {"CC": value}})
        ch.barrier()


@script("BCC that is not an array closes the channel")
def _(s: Session) -> None:
    ch = s.channel()
    ch.publish("no", "nowhere", properties={"headers": {"BCC": "q"}})
    ch.expect_close()


@script("members of a CC array that are not strings are passed over")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q2")
    ch.publish("some", "nowhere", properties={"headers": {"CC": [5, "q2", True]}})
    s.settle()
    ch.call("basic.get", queue="q2", no_ack=True)


@script("header values of every type come back as they were sent")
def _(s: Session) -> None:
    ch = s.channel()
    ch.call("queue.declare", queue="q")
    headers = {
        "t": True, "f": False, "b": Typed("b", -128), "B": Typed("B", 255), "s": Typed("s", -32768),
        "u": Typed("u", 65535), "I": Typed("I", -(2**31)), "i": Typed("i", 2**32 - 1), "l": Typed("l", -(2**63)),
        "float": Typed("f", 0.5), "double": Typed("d", 1e300), "D": Typed("D", (2, 314)), "S": "text",
        "bytes": b"\x00\xff", "T": Typed("T", 1_700_000_000), "V": None, "F": {"nested": {"deep": [1, ["x"]]}},
        "A": [], "empty": {},
    }  # fmt: skip
    ch.publish("typed", "q", properties={"headers": headers})
    s.settle()
    ch.call("basic.get", queue="q", no_ack=True)
