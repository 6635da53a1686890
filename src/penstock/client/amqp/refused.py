"""What a broker says no to."""

from __future__ import annotations

from penstock.client.errors import ClientError


class Refused(ClientError):
    """The broker has refused a call, and would refuse it again; the text has its words.

    `reply_code` is AMQP's: 403 not permitted, 404 not there, 406 there with other arguments; 312 no such queue for a
    message, 0 a message that was nacked.
    """

    def __init__(self, text: str, reply_code: int = 0) -> None:
        super().__init__(text)
        self.reply_code = reply_code
