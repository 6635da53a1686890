"""Methods of the channel, access, confirm and tx classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.errors import channel_error, precondition_failed
from penstock.server.channel.channel import Channel
from penstock.server.channel.confirms import ConfirmLedger
from penstock.server.settling.commit import Commit
from penstock.server.settling.rollback import Rollback
from penstock.server.settling.transaction import Transaction
from penstock.wire import methods


def channel_open(channel: Channel, method: methods.ChannelOpen) -> None:
    raise channel_error("second 'channel.open' seen")


def channel_close(channel: Channel, method: methods.ChannelClose) -> None:
    connection = channel.connection
    channel.offer()
    connection.forget_channel(channel)
    connection.channels.pop(channel.number, None)
    # Not before what it had is ready again: the client may look when it has this answer.
    connection.when_settled(lambda: channel.send(methods.ChannelCloseOk()))


def channel_flow(channel: Channel, method: methods.ChannelFlow) -> None:
    """Stop or resume deliveries. Answers of basic.get, and direct replies, which are not kept, come all the same."""
    channel.offer()
    channel.flow_stopped = not method.active
    channel.update_interest()
    channel.send(methods.ChannelFlowOk(method.active))


def access_request(channel: Channel, method: methods.AccessRequest) -> None:
    channel.send(methods.AccessRequestOk(1))


def confirm_select(channel: Channel, method: methods.ConfirmSelect) -> None:
    if channel.transaction is not None:
        raise precondition_failed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = ConfirmLedger(partial(channel.connection.confirms_ready, channel))
    if not method.no_wait:
        channel.send(methods.ConfirmSelectOk())


def tx_select(channel: Channel, method: methods.TxSelect) -> None:
    if channel.confirms is not None:
        raise precondition_failed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel)
    channel.send(methods.TxSelectOk())


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise precondition_failed("channel is not transactional")
    return channel.transaction


def tx_commit(channel: Channel, method: methods.TxCommit) -> None:
    channel.connection.server.settlements.begin(Commit(channel, *_transaction(channel).take()))


def tx_rollback(channel: Channel, method: methods.TxRollback) -> None:
    channel.connection.server.settlements.begin(Rollback(channel, _transaction(channel)))


HANDLERS: dict[int, Callable[[Channel, Any], None]] = {
    methods.ChannelOpen.INDEX: channel_open,
    methods.ChannelClose.INDEX: channel_close,
    methods.ChannelFlow.INDEX: channel_flow,
    methods.AccessRequest.INDEX: access_request,
    methods.ConfirmSelect.INDEX: confirm_select,
    methods.TxSelect.INDEX: tx_select,
    methods.TxCommit.INDEX: tx_commit,
    methods.TxRollback.INDEX: tx_rollback,
}
