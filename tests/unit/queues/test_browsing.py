"""Browsers go through a queue once: over holes, over shelves, past what they do not want."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_house import Inbox, texts_of
from tests.effort import examples

from penstock import limits
from penstock.backing.volatile import VolatileBackingQueue
from penstock.message import Envelope, Incoming
from penstock.queues.consumers.browsing import PAGE_MESSAGES, SHELVED_AT_ONCE, browse_run, has_more
from penstock.queues.consumers.consumer import ConsumerFilter
from penstock.queues.selection.fifo_order import FifoOrder, fifo_selection
from penstock.queues.selection.selection import SelectionHost

ENVELOPE = Envelope("", "q", b"\x00\x00")


class Nobody(SelectionHost):
    """A queue in which nothing expires."""

    def dead_letter(self, seq_ids: Sequence[int], reason: str) -> None:
        raise AssertionError("nothing expires here")

    def became_available(self, count: int) -> None:
        pass

    def wall_ms(self) -> int:
        return 0

    def wake_at(self, due_ms: int) -> None:
        pass


class Numbers(ConsumerFilter):
    """Accepts messages by their seq_ids, and counts how many it was shown."""

    def __init__(self, *wanted: int) -> None:
        self.wanted = frozenset(wanted)
        self.looks = 0

    def accepts(self, seq_id: int, envelope: Envelope) -> bool:
        self.looks += 1
        return seq_id in self.wanted


class Shop:
    """A backing with a selection in front of it, and browsers."""

    def __init__(self, count: int = 0) -> None:
        self.backing = VolatileBackingQueue()
        self.selection = fifo_selection(Nobody(), self.backing)
        self.published = 0
        self.publish(count)

    def publish(self, count: int) -> None:
        if count:
            bodies = [b"%d\xce" % number for number in range(self.published, self.published + count)]
            self.selection.published(self.backing.publish(Incoming(ENVELOPE, bodies), None), count)
            self.published += count

    def shelve_all(self) -> None:
        """A consumer looks for what is not there."""
        picky = Inbox()
        picky.filter = Numbers()
        while not self.backing.is_empty():
            assert self.selection.fetch(picky, 100, 0, True) is None

    def browser(self, wants: Numbers | None = None, start: int = 0) -> Inbox:
        browser = Inbox(acquires=False, no_ack=True)
        browser.filter = wants
        browser.browse_seq_id = start
        return browser

    def browse(self, browser: Inbox, count_max: int = 100) -> list[int] | None:
        run = browse_run(self.backing, self.selection, browser, count_max)
        if run is None:
            return None
        numbers = [int(text) for text in texts_of(run)]
        assert numbers == list(range(run.first_seq_id, run.first_seq_id + len(numbers)))
        return numbers

    def browse_all(self, browser: Inbox, count_max: int = 100) -> list[int]:
        found: list[int] = []
        while True:
            told = browser.told
            run = self.browse(browser, count_max)
            found += run or []
            if run is None and browser.told == told:
                return found


def test_a_browser_reads_runs_up_to_the_end_and_goes_on_with_what_is_new() -> None:
    shop = Shop(5)
    browser = shop.browser()
    assert shop.browse(browser, 3) == [0, 1, 2]
    assert shop.browse(browser, 3) == [3, 4]
    assert shop.browse(browser) is None
    assert not has_more(shop.backing, shop.selection, browser)
    shop.publish(1)
    assert has_more(shop.backing, shop.selection, browser)
    assert shop.browse(browser) == [5]


def test_a_browser_begins_where_it_is_told_to() -> None:
    shop = Shop(10)
    assert shop.browse_all(shop.browser(start=7)) == [7, 8, 9]
    assert shop.browse_all(shop.browser(start=50)) == []


def test_what_is_shelved_is_shown_like_what_is_not() -> None:
    shop = Shop(5)
    shop.shelve_all()
    shop.publish(5)
    browser = shop.browser()
    assert has_more(shop.backing, shop.selection, browser)
    assert shop.browse_all(browser) == list(range(10))
    assert shop.selection.ready_count() == 5
    assert not has_more(shop.backing, shop.selection, browser)


def test_a_browser_that_has_only_the_shelf_in_front_of_it_has_more() -> None:
    shop = Shop(3)
    shop.shelve_all()
    assert has_more(shop.backing, shop.selection, shop.browser(start=2))
    assert not has_more(shop.backing, shop.selection, shop.browser(start=3))


def test_shelves_with_holes_are_read_in_order_page_by_page() -> None:
    count = 2 * PAGE_MESSAGES + 3
    shop = Shop(count)
    shop.shelve_all()
    taken = {0, 2, 3, SHELVED_AT_ONCE, PAGE_MESSAGES - 1, PAGE_MESSAGES + 3, count - 1}
    assert set(shop.selection.take(sorted(taken))) == taken
    shop.publish(4)
    assert shop.browse_all(shop.browser()) == [number for number in range(count + 4) if number not in taken]


def test_a_browser_lists_no_more_of_a_shelf_than_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(2 * PAGE_MESSAGES)
    shop.shelve_all()
    listed: list[int] = []

    def shelved_ids(self: FifoOrder) -> list[int]:
        listed.append(len(self.shelf))
        return self.shelf.ids.listed()

    monkeypatch.setattr(FifoOrder, "ids_in_order", shelved_ids)
    browser = shop.browser(start=PAGE_MESSAGES - 10)
    assert has_more(shop.backing, shop.selection, browser)
    assert shop.browse(browser) == list(range(PAGE_MESSAGES - 10, PAGE_MESSAGES - 10 + SHELVED_AT_ONCE))
    assert len(browser.browse_page) == PAGE_MESSAGES
    at_the_end = shop.browser(start=2 * PAGE_MESSAGES)
    assert not has_more(shop.backing, shop.selection, at_the_end)
    assert shop.browse(at_the_end) is None
    assert listed == []


def test_messages_that_left_the_queue_after_the_page_was_taken_are_skipped() -> None:
    shop = Shop(10)
    shop.shelve_all()
    browser = shop.browser()
    assert shop.browse(browser, 2) == [0, 1]
    shop.backing.ack(shop.selection.take([2, 3, 4, 8]))
    assert shop.browse_all(browser) == [5, 6, 7, 9]


def test_a_browser_survives_that_everything_is_purged() -> None:
    shop = Shop(10)
    shop.shelve_all()
    browser = shop.browser()
    shop.browse(browser, 2)
    shop.selection.purge()
    assert shop.browse(browser) is None
    shop.publish(2)
    assert shop.browse_all(browser) == [10, 11]


@pytest.mark.parametrize("shelved", [False, True])
def test_a_filter_leaves_runs_of_neighbours(shelved: bool) -> None:
    shop = Shop(12)
    if shelved:
        shop.shelve_all()
    browser = shop.browser(Numbers(1, 2, 3, 5, 9, 10, 11))
    assert [shop.browse(browser) for _ in range(4)] == [[1, 2, 3], [5], [9, 10, 11], None]


def test_a_filter_looks_at_so_many_messages_at_a_time_and_asks_to_be_called_again() -> None:
    count = 3 * limits.LOOKS_PER_FETCH
    shop = Shop(count)
    wants = Numbers(count - 1)
    browser = shop.browser(wants)
    assert shop.browse(browser) is None
    assert browser.told == 1
    assert limits.LOOKS_PER_FETCH <= wants.looks < 2 * limits.LOOKS_PER_FETCH
    assert shop.browse_all(browser) == [count - 1]
    assert browser.told == 2


def test_at_the_end_a_browser_is_not_told_to_come_again() -> None:
    shop = Shop(10)
    browser = shop.browser(Numbers())
    assert shop.browse(browser) is None
    assert browser.told == 0


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(1, 40), st.integers(0, 40), st.sets(st.integers(0, 39)), st.sets(st.integers(0, 39)), st.booleans())
def test_every_wanted_message_is_seen_once_and_in_order(
    count: int, shelved: int, gone: set[int], wanted: set[int], with_filter: bool
) -> None:
    shop = Shop(min(shelved, count))
    shop.shelve_all()
    shop.publish(count - min(shelved, count))
    shop.backing.ack(shop.selection.take(sorted(number for number in gone if number < count)))
    browser = shop.browser(Numbers(*wanted) if with_filter else None)
    there = [number for number in range(count) if number not in gone]
    assert shop.browse_all(browser, 3) == [number for number in there if not with_filter or number in wanted]
