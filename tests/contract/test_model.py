"""The model itself: what it says about a crash. A model that allows everything would prove nothing."""

from __future__ import annotations

import pytest

from penstock.message import ConfirmToken, Entry, Envelope, MessageProps
from tests.contract.backings import stored
from tests.contract.model import CONFIRMED, GONE, READY, UNCERTAIN, BackingModel

BODIES = stored([b"a", b"b", b"c"])


def filled() -> BackingModel:
    """0 to 2 persistent and confirmed, 3 to 5 transient, 6 to 8 persistent and unconfirmed; 0 acked, 1 pending."""
    model = BackingModel()
    for first, persistent in ((0, True), (3, False), (6, True)):
        envelope = Envelope("", "key", b"\x00\x00", persistent=persistent)
        model.publish(first, envelope, BODIES, MessageProps(confirm=ConfirmToken(1)), READY, seen=False)
        if first < 6:
            model.confirm([token for run in model.owed if (token := run.token) is not None])
    model.take(model.in_state(READY)[:2], ack_required=True)
    assert model.settle([0, 0, 99], GONE) == 1
    return model


def found(model: BackingModel, *seq_ids: int) -> list[tuple[int, Entry]]:
    return [(seq_id, model.messages[seq_id].entry) for seq_id in seq_ids]


def test_after_a_crash_a_message_is_confirmed_or_uncertain_or_must_be_lost() -> None:
    fates = filled().fates(clean=False)
    assert fates == {0: UNCERTAIN, 1: CONFIRMED, 2: CONFIRMED, 6: UNCERTAIN, 7: UNCERTAIN, 8: UNCERTAIN}


def test_after_a_clean_stop_nothing_is_uncertain() -> None:
    fates = filled().fates(clean=True)
    assert fates == dict.fromkeys((1, 2, 6, 7, 8), CONFIRMED)


@pytest.mark.parametrize("back", [(1, 2), (0, 1, 2), (1, 2, 6), (0, 1, 2, 6, 7), (1, 2, 6, 7, 8)])
def test_a_crash_may_leave_a_prefix_of_what_is_uncertain(back: tuple[int, ...]) -> None:
    model = filled()
    model.recover(found(model, *back), clean=False, survives=True)
    assert [held.seq_id for held in model.in_state(READY)] == list(back)
    assert model.messages[1].redelivered is True
    assert model.messages[2].redelivered is None
    assert model.next_seq_id == back[-1] + 1


def test_a_clean_restart_does_not_bring_back_knowledge_that_a_crash_took() -> None:
    model = filled()
    model.recover(found(model, 1, 2, 6, 7, 8), clean=True, survives=True)
    assert [held.redelivered for held in model.in_state(READY)] == [True, False, False, False, False]
    model.recover(found(model, 1, 2, 6, 7, 8), clean=False, survives=True)
    model.recover(found(model, 1, 2, 6, 7, 8), clean=True, survives=True)
    assert [held.redelivered for held in model.in_state(READY)] == [True, None, None, None, None]


@pytest.mark.parametrize(
    ("back", "complaint"),
    [
        ((1,), "lost"),
        ((1, 2, 3), "must not"),
        ((1, 2, 7), "prefix"),
        ((1, 2, 6, 8), "prefix"),
        ((2, 1), "order"),
        ((1, 1, 2), "twice"),
    ],
)
def test_a_crash_may_not_leave_anything_else(back: tuple[int, ...], complaint: str) -> None:
    model = filled()
    with pytest.raises(AssertionError, match=complaint):
        model.recover(found(model, *back), clean=False, survives=True)


def test_what_keeps_nothing_must_come_back_empty() -> None:
    model = filled()
    with pytest.raises(AssertionError, match="must not"):
        model.recover(found(model, 2), clean=True, survives=False)
    model.recover([], clean=False, survives=False)
    assert (model.contents(), model.next_seq_id) == ([], 0)


def test_a_seq_id_that_was_used_is_not_accepted_after_a_clean_restart() -> None:
    model = filled()
    model.recover(found(model, 1, 2, 6, 7, 8), clean=True, survives=True)
    envelope = Envelope("", "key", b"\x00\x00")
    with pytest.raises(AssertionError):
        model.publish(8, envelope, BODIES, None, READY, seen=False)
    model.publish(20, envelope, BODIES, None, READY, seen=False)
    with pytest.raises(AssertionError):
        model.publish(30, envelope, BODIES, None, READY, seen=False)
