"""Methods of the channel, access, confirm and tx classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import channel_error, not_implemented, precondition_failed
from penstock.queues.confirms import ConfirmLedger
from penstock.server.awaited_answer import AwaitedAnswer
from penstock.server.channel import Channel
from penstock.server.transaction import Transaction
from penstock.wire import methods


def channel_open(channel: Channel, method: methods.ChannelOpen) -> None:
    raise channel_error("second 'channel.open' seen")


def channel_close(channel: Channel, method: methods.ChannelClose) -> None:
    connection = channel.connection
    connection.forget_channel(channel)
    connection.channels.pop(channel.number, None)
    channel.send(methods.ChannelCloseOk())


def channel_flow(channel: Channel, method: methods.ChannelFlow) -> None:
    if not method.active:
        raise not_implemented("active=false")
    channel.send(methods.ChannelFlowOk(True))


def access_request(channel: Channel, method: methods.AccessRequest) -> None:
    channel.send(methods.AccessRequestOk(1))


def confirm_select(channel: Channel, method: methods.ConfirmSelect) -> None:
    if channel.transaction is not None:
        raise precondition_failed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = ConfirmLedger(channel)
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
    transaction = _transaction(channel)
    node = channel.connection.broker.node
    if node is None:
        transaction.commit()
        channel.send(methods.TxCommitOk())
        return
    before = node.journal.next_lsn
    transaction.commit()
    if node.journal.next_lsn == before:
        # Nothing of it lasts: transient messages, and acks of such.
        channel.send(methods.TxCommitOk())
    else:
        AwaitedAnswer(channel, methods.TxCommitOk()).wait_with(node.journal.when_durable)


def tx_rollback(channel: Channel, method: methods.TxRollback) -> None:
    _transaction(channel).rollback()
    channel.send(methods.TxRollbackOk())


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
