"""Where penstock and RabbitMQ differ on purpose: the script, the reason, and exactly what is different.

A difference replaces lines of RabbitMQ's transcript; what is left must be equal. An entry that no longer changes
anything, or whose lines are not in the recording, fails a test, so the table stays as short as the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from .session import Transcript


@dataclass(frozen=True)
class Change:
    """Lines of one channel: where RabbitMQ says `rabbitmq`, penstock says `penstock`.

    A line of RabbitMQ's that ends in `...` stands for every line that begins so.
    """

    place: str
    rabbitmq: tuple[str, ...]
    penstock: tuple[str, ...]


@dataclass(frozen=True)
class Agreed:
    reason: str
    changes: tuple[Change, ...]


def close(code: int, text: str, class_id: int = 0, method_id: int = 0, kind: str = "connection") -> str:
    return f"{kind}.close reply_code={code} reply_text={text!r} class_id={class_id} method_id={method_id}"


def told(place: str, code: int, text: str, class_id: int = 0, method_id: int = 0) -> Change:
    """RabbitMQ ends the connection without a word; penstock says why first."""
    return Change(place, ("EOF",), (close(code, text, class_id, method_id), "EOF"))


def worded(place: str, code: int, text: str, class_id: int = 0, method_id: int = 0) -> Change:
    """Both close the connection; penstock words it otherwise."""
    return Change(place, ("connection.close ...",), (close(code, text, class_id, method_id),))


SAYS_WHY = "RabbitMQ drops the socket without a word; penstock tells the client what was wrong"
SYNTAX = "arguments that cannot be decoded are a syntax error in the specification; RabbitMQ says frame error"
NOT_OUR_FAULT = "a client's malformed content is not an internal error of the broker"
PROPERTIES = "SYNTAX_ERROR - cannot decode the properties of a message"
CUT_HEADER = "FRAME_ERROR - content header is cut short"
LOGIN_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}. For details see the broker logfile."
)
TOO_EARLY = "CHANNEL_ERROR - unexpected method in connection state starting"
MECHANISM = "COMMAND_INVALID - unsupported authentication mechanism '{}'"
UNEXPECTED = "UNEXPECTED_FRAME - type 1, all octets = <<{}>>"
TOO_LARGE = "PRECONDITION_FAILED - message size {} is larger than configured max size 134217728"
CUT_TABLE = "SYNTAX_ERROR - table or array is cut short"
CUT_FIELD = "SYNTAX_ERROR - table field is cut short"
ARGUMENTS = "SYNTAX_ERROR - cannot decode the arguments of method {}"
DELIVER = "basic.deliver consumer_tag='t' delivery_tag=2 redelivered=False exchange='' routing_key='q' |  | '2'"
RETURN = "basic.return reply_code=312 reply_text='NO_ROUTE' exchange='' routing_key='<reply-to 1>' |  | 'nobody'"
TOO_MANY_WORDS = "PRECONDITION_FAILED - topic pattern with 256 words; at most 128 are allowed"
TUNE = "NOT_ALLOWED - negotiated {} = {} is {} allowed value ({})"


HANDSHAKE = {
    "the protocol headers of 0-8 are answered in kind": Agreed(
        "penstock speaks 0-9-1 only",
        tuple(
            Change(place, ("connection.start ...",), ("protocol header AMQP (0, 0, 9, 1)", "EOF"))
            for place in ("a/0", "b/0")
        ),
    ),
    "a mechanism that was not offered ends the connection": Agreed(
        SAYS_WHY,
        tuple(
            told(f"{letter}/0", 503, MECHANISM.format(name), 10, 11)
            for letter, name in zip("abcde", ("KERBEROS", "EXTERNAL", "plain", "", "PLAIN AMQPLAIN"), strict=True)
        ),
    ),
    "connection.update-secret takes any secret where passwords are checked at login only": Agreed(
        "RabbitMQ looks at the secrets of tokens only; penstock checks that it is the user's password",
        (
            Change(
                "a/0",
                ("connection.update-secret-ok",),
                (close(530, "NOT_ALLOWED - New secret was refused by one of the backends", 10, 70), "EOF"),
            ),
            Change("a/1", ("channel.open-ok channel_id=''",), ()),
        ),
    ),
    "a malformed SASL response ends the connection": Agreed(
        SAYS_WHY,
        tuple(told(f"{letter}/0", 403, LOGIN_REFUSED.format("PLAIN")) for letter in "abcde")
        + tuple(told(f"{letter}/0", 403, LOGIN_REFUSED.format("AMQPLAIN")) for letter in "fghj"),
    ),
    "tune-ok above the offer or below the minimum ends the connection": Agreed(
        SAYS_WHY,
        (
            told("a/0", 530, TUNE.format("frame_max", 131_073, "higher than the maximum", 131_072), 10, 31),
            told("b/0", 530, TUNE.format("channel_max", 2048, "higher than the maximum", 2047), 10, 31),
            told("c/0", 530, TUNE.format("frame_max", 4095, "lower than the minimum", 4096), 10, 31),
            told("d/0", 530, TUNE.format("frame_max", 1, "lower than the minimum", 4096), 10, 31),
        ),
    ),
    "tune-ok without a limit where the server has one": Agreed(
        "0 asks for no limit of the client's own; penstock takes it as its own limit, as the specification allows",
        tuple(Change(place, ("EOF",), ("connection.open-ok known_hosts=''",)) for place in ("a/0", "b/0")),
    ),
    "what is said too early on channel 0 ends the connection": Agreed(
        SAYS_WHY,
        tuple(
            told(f"{letter}/0", 504, TOO_EARLY, 10, method)
            for letter, method in (("a", 40), ("b", 31), ("c", 21), ("e", 40), ("f", 11), ("g", 21))
        )
        + tuple(Change(f"{letter}/0", ("EOF",), ("connection.close-ok", "EOF")) for letter in "dh"),
    ),
    "what is said on other channels before the login ends the connection": Agreed(
        SAYS_WHY,
        (
            told("a/0", 505, UNEXPECTED.format("0,20,0,10,0")),
            told("b/0", 505, UNEXPECTED.format("0,50,0,10,0,0,1,113,0,0,0,0,0")),
            told("c/0", 501, "FRAME_ERROR - type 2, all octets = <<0,60,0,0>>: unknown_frame"),
            told("d/0", 505, UNEXPECTED.format("0,20,0,10,0")),
        ),
    ),
    "connection.close between tune-ok and open is refused": Agreed(
        "a client may always close; RabbitMQ calls it an unexpected method",
        (Change("a/0", ("connection.close ...",), ("connection.close-ok",)),),
    ),
    "malformed frames before the login end the connection": Agreed(
        SAYS_WHY,
        (
            told("a/0", 501, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,65536,8184}"),
            told("b/0", 501, 'FRAME_ERROR - type 9, all octets = <<"x">>: unknown_frame'),
            told("c/0", 502, CUT_TABLE),
            told("d/0", 503, "COMMAND_INVALID - unknown method 10,99"),
            told("e/0", 501, "FRAME_ERROR - type 1, all octets = <<0,10,0,11>>: {invalid_frame_end_marker,0}"),
        ),
    ),
}

FRAMES = {
    "an unknown class closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 503, "COMMAND_INVALID - unknown method 99,10", 99, 10),)
    ),
    "an unknown method of a known class closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 503, "COMMAND_INVALID - unknown method 50,99", 50, 99),)
    ),
    "an unknown method on channel 0 closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 503, "COMMAND_INVALID - unknown method 10,99"),)
    ),
    "an unknown method on a channel that was never opened closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 503, "COMMAND_INVALID - unknown method 99,10"),)
    ),
    "arguments cut short close the connection": Agreed(
        SYNTAX, tuple(worded(f"{letter}/0", 502, ARGUMENTS.format("50,10"), 50, 10) for letter in "abcd")
    ),
    "octets after the arguments close the connection": Agreed(
        SYNTAX, (worded("a/0", 502, "SYNTAX_ERROR - cannot decode the arguments of basic.qos", 60, 10),)
    ),
    "a short string longer than its frame closes the connection": Agreed(
        SYNTAX, (worded("a/0", 502, ARGUMENTS.format("50,10"), 50, 10),)
    ),
    "a short string that is not UTF-8 closes the connection": Agreed(
        SYNTAX, (worded("a/0", 502, ARGUMENTS.format("60,30"), 60, 30),)
    ),
    "a queue name that is not UTF-8 closes the connection": Agreed(
        SYNTAX, (worded("a/0", 502, ARGUMENTS.format("50,10"), 50, 10),)
    ),
}

CONTENTS = {
    "more body than declared is not a message": Agreed(
        "RabbitMQ 3.10 lets the channel hang for ever; penstock refuses, as later versions of RabbitMQ do",
        (
            Change(
                "a/0",
                (),
                (close(501, "FRAME_ERROR - content body is larger than its header says", 60, 40), "EOF"),
            ),
            Change("a/2", ("channel.open-ok channel_id=''", "queue.declare-ok ..."), ()),
        ),
    ),
    "a declared size above every limit": Agreed(
        "the size is checked at the header, before a byte of the body is kept; RabbitMQ checks it after the body",
        tuple(
            Change(f"{letter}/1", (), (close(406, TOO_LARGE.format(size), 60, 40, "channel"),))
            for letter, size in (("a", 2**63), ("b", 2**64 - 1), ("c", 512 * 1024 * 1024 + 1))
        ),
    ),
    "a header frame without property flags closes the connection": Agreed(
        NOT_OUR_FAULT, tuple(worded(f"{letter}/0", 501, CUT_HEADER, 60, 40) for letter in "ab")
    ),
    "properties cut short close the connection": Agreed(NOT_OUR_FAULT, (worded("a/0", 502, PROPERTIES, 60, 40),)),
    "octets after the properties close the connection": Agreed(
        NOT_OUR_FAULT, (worded("a/0", 502, PROPERTIES, 60, 40),)
    ),
    "property flags beyond the fourteen close the connection": Agreed(
        NOT_OUR_FAULT, (worded("a/0", 502, "SYNTAX_ERROR - property flags 0x0002 are not defined", 60, 40),)
    ),
    "property flags continued in a second word close the connection": Agreed(
        NOT_OUR_FAULT, (worded("a/0", 502, "SYNTAX_ERROR - property flags 0x0001 are not defined", 60, 40),)
    ),
    "a malformed header table closes the connection": Agreed(
        NOT_OUR_FAULT, (worded("a/0", 502, "SYNTAX_ERROR - table field of unknown type 90", 60, 40),)
    ),
}

TABLES = {
    "an unknown field type closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 502, "SYNTAX_ERROR - table field of unknown type 90", 50, 10),)
    ),
    "a field name longer than its table closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 502, CUT_FIELD, 50, 10),)
    ),
    "a field without a value closes the connection": Agreed(SAYS_WHY, (told("a/0", 502, CUT_FIELD, 50, 10),)),
    "an inner table longer than the outer closes the connection": Agreed(
        SAYS_WHY, (told("a/0", 502, CUT_TABLE, 50, 10),)
    ),
    "an array longer than its table closes the connection": Agreed(SAYS_WHY, (told("a/0", 502, CUT_TABLE, 50, 10),)),
    "a table longer than its frame closes the connection": Agreed(SYNTAX, (worded("a/0", 502, CUT_TABLE, 50, 10),)),
    "a table shorter than its fields closes the connection": Agreed(SYNTAX, (worded("a/0", 502, CUT_FIELD, 50, 10),)),
    "a field name that is not UTF-8": Agreed(
        "names are text; RabbitMQ does not look at those inside tables",
        (
            Change("a/0", (), (close(502, "SYNTAX_ERROR - a field name of a table is not UTF-8", 50, 10), "EOF")),
            Change("a/1", ("queue.declare-ok ...",), ()),
        ),
    ),
    "tables nested a hundred deep in a method": Agreed(
        "nesting is limited to 32, so that nobody who walks a table has to fear its depth",
        (
            Change("a/0", (), (close(502, "SYNTAX_ERROR - table nested more than 32 deep", 50, 10), "EOF")),
            Change("a/1", ("queue.declare-ok ...",), ()),
        ),
    ),
}

DELIVERY = {
    "a pattern of more than 128 words": Agreed(
        "the words of a topic pattern are limited, so that matching one message has a bounded cost",
        (
            Change(
                "a/1",
                ("queue.bind-ok",),
                (close(406, TOO_MANY_WORDS, 50, 20, "channel"),),
            ),
        ),
    ),
    "what get took counts against global prefetch": Agreed(
        "what basic.get took is not in the hands of a consumer; RabbitMQ counts it and never gives the room back",
        (Change("a/1", (), (DELIVER,)),),
    ),
    "channel.flow that stops messages is not implemented": Agreed(
        "a client may stop the deliveries of a channel and have them resumed, as in Qpid",
        (
            Change("a/0", ("connection.close ...", "EOF"), ()),
            Change("a/1", (), ("channel.flow-ok active=False",)),
        ),
    ),
    "a mandatory reply reaches the asker and comes back all the same": Agreed(
        "a message that was delivered is not returned", (Change("b/1", ("basic.return ...",), ()),)
    ),
    "a reply to a made-up address": Agreed(
        "an address that nobody has is unroutable; RabbitMQ fails to decode it and reports an internal error",
        (
            Change("a/0", ("connection.close ...", "EOF"), ()),
            Change("a/1", (), (RETURN,)),
        ),
    ),
}

HIGH = "basic.get-ok delivery_tag=1 redelivered=False exchange='' routing_key='q' message_count=1 | priority=5 ..."
LOW = (
    "basic.get-ok delivery_tag={} redelivered=False exchange='' routing_key='q' message_count=0 | priority=1 | '1 of 1'"
)
FEATURES = {
    "an integer that comes back as a double is unequal": Agreed(
        "floats are written as Python writes them",
        (
            Change(
                "a/1",
                ("channel.close ...",),
                (
                    close(
                        406,
                        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received"
                        " '60000.0' but current is '60000'",
                        50,
                        10,
                        "channel",
                    ),
                ),
            ),
        ),
    ),
    "a high message that expires in front of an older low one is delivered all the same": Agreed(
        "what has expired at the head is not delivered, whatever stands behind it",
        (
            Change(
                "a/1",
                ("queue.declare-ok queue='q' message_count=2 consumer_count=0", HIGH, LOW.format(2)),
                (
                    "queue.declare-ok queue='q' message_count=1 consumer_count=0",
                    LOW.format(1),
                    "basic.get-empty cluster_id=''",
                ),
            ),
        ),
    ),
    "no-local is accepted and takes no effect": Agreed(
        "a consumer that asks for no messages of its own connection gets none, as in Qpid",
        (Change("a/1", ("basic.deliver ...",), ()),),
    ),
    "basic.get shows the count of deliveries from the first one on": Agreed(
        "a message that comes for the first time has no count, neither by consume nor by get",
        (
            Change(
                "a/1",
                ("basic.get-ok delivery_tag=1 redelivered=False exchange='' routing_key='q' message_count=0 ...",),
                (
                    "basic.get-ok delivery_tag=1 redelivered=False exchange='' routing_key='q' message_count=0"
                    " | headers={'z': I:1} | 'tried'",
                ),
            ),
        ),
    ),
}

AGREED: dict[str, Agreed] = HANDSHAKE | FRAMES | CONTENTS | TABLES | DELIVERY | FEATURES


# In connection.start: penstock offers SCRAM-SHA-256, too, which RabbitMQ does not have. Clients choose one they know.
RABBITMQ_OFFERS = "mechanisms='AMQPLAIN PLAIN'"
PENSTOCK_OFFERS = "mechanisms='AMQPLAIN PLAIN SCRAM-SHA-256'"


def expected(name: str, recorded: Transcript) -> Transcript:
    """What penstock has to say where RabbitMQ said `recorded`."""
    result = {
        place: [line.replace(RABBITMQ_OFFERS, PENSTOCK_OFFERS) for line in lines] for place, lines in recorded.items()
    }
    agreed = AGREED.get(name)
    for change in agreed.changes if agreed is not None else ():
        lines = result.pop(change.place, [])
        at = _position(lines, change.rabbitmq)
        assert at is not None, f"RabbitMQ does not say {change.rabbitmq} on {change.place} in {name!r}"
        lines[at : at + len(change.rabbitmq)] = change.penstock
        if lines:
            result[change.place] = lines
    return dict(sorted(result.items()))


def _position(lines: list[str], wanted: tuple[str, ...]) -> int | None:
    """Where the wanted lines begin; at the end when nothing is wanted, which is how lines are added."""
    if not wanted:
        return len(lines)
    for at in range(len(lines) - len(wanted) + 1):
        if all(_is(line, want) for line, want in zip(lines[at:], wanted, strict=False)):
            return at
    return None


def _is(line: str, wanted: str) -> bool:
    return line.startswith(wanted[:-3]) if wanted.endswith("...") else line == wanted
