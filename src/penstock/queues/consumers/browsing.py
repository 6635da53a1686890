"""How a browser goes through a queue: by position, once, past what it does not want.

A browser has its place itself: `browse_seq_id`, and `browse_page`, the numbers of shelved messages that it will come to
next. Messages are ready in the backing, or on the shelf of a selection (see `selection`), where they are pending as far
as the backing knows; a browser is shown both, in the order of their seq_ids. The shelf is looked at only where the
backing has a hole at the browser's place, a page of numbers at a time: however large the shelf is, a step costs a page.
With a filter a step looks at LOOKS_PER_FETCH messages at most; then the browser gives up, and is told to come again.

Invariants
  1. A run has consecutive seq_ids, and every message of it passes the browser's filter.
  2. A browser's place never goes back, so that it sees a message once at most.
  3. None was returned => the browser is at the end, or it was told of work again (`notify_work`), or will be when a
     large body was read beside the loop.
  4. Nothing of the queue changes.

What this gives up for its speed: a message that is shelved after the page was taken, and stands in front of the page's
last one, is passed over; one that was taken off the shelf since then may still be shown.
"""

from __future__ import annotations

from typing import Final

from penstock import limits
from penstock.backing.backing_queue import BackingQueue
from penstock.message import Entry, Run
from penstock.queues.consumers.consumer import Consumer
from penstock.queues.selection.selection import Selection

# Shelved messages whose numbers a browser takes at once.
PAGE_MESSAGES: Final = 4_096
# Their bodies may have to be read from disk, whatever their size.
SHELVED_AT_ONCE: Final = 16
# What a filter is shown at once: what it leaves behind the first wanted stretch is read a second time.
FILTERED_AT_ONCE: Final = 32


def browse_run(backing: BackingQueue, selection: Selection | None, browser: Consumer, count_max: int) -> Run | None:
    """Return the next run for the browser, whose place moves behind it; None when there is nothing now."""
    looks_left = limits.LOOKS_PER_FETCH
    if browser.filter is not None:
        count_max = min(count_max, FILTERED_AT_ONCE)
    while looks_left > 0:
        if backing.waits_to_browse(browser.browse_seq_id):
            return None
        run = _next_run(backing, selection, browser, count_max)
        if run is None:
            return None
        if browser.filter is None:
            browser.browse_seq_id = run.first_seq_id + len(run.entries)
            return run
        wanted = _first_stretch(run, browser)
        if wanted is not None:
            return wanted
        looks_left -= len(run.entries)
    # It was enough for one turn. There may be more.
    browser.notify_work()
    return None


def has_more(backing: BackingQueue, selection: Selection | None, browser: Consumer) -> bool:
    """Return whether there may be something at the browser's place or behind it."""
    if browser.browse_page or backing.may_browse(browser.browse_seq_id):
        return True
    return selection is not None and len(selection.shelved_from(browser.browse_seq_id, 1)) > 0


def _first_stretch(run: Run, browser: Consumer) -> Run | None:
    """The first messages of the run that are wanted and follow each other. The browser's place moves behind them."""
    wants = browser.filter
    assert wants is not None
    entries: list[Entry] = []
    seq_id = run.first_seq_id
    for entry in run.entries:
        if wants.accepts(seq_id, entry[0]):
            entries.append(entry)
        elif entries:
            break
        seq_id += 1
    browser.browse_seq_id = seq_id
    return Run(seq_id - len(entries), entries, run.redelivered) if entries else None


def _next_run(backing: BackingQueue, selection: Selection | None, browser: Consumer, count_max: int) -> Run | None:
    """Return messages at the browser's place or behind it, the nearest first, wanted or not."""
    ready = backing.browse(browser.browse_seq_id, count_max, limits.PULL_BYTES_MAX)
    page = browser.browse_page
    if ready is not None and ready.first_seq_id == browser.browse_seq_id:
        return ready
    if selection is None or not selection.ready_count():
        page.clear()
        return ready
    while True:
        while page and page[-1] < browser.browse_seq_id:
            page.pop()
        if not page:
            _turn_page(selection, browser)
        if not page or (ready is not None and ready.first_seq_id <= page[-1]):
            return ready
        shelved = _shelved_run(backing, page, min(count_max, SHELVED_AT_ONCE))
        if shelved is not None:
            return shelved


def _turn_page(selection: Selection, browser: Consumer) -> None:
    """The next shelved numbers, the nearest last."""
    page = selection.shelved_from(browser.browse_seq_id, PAGE_MESSAGES)
    page.reverse()
    browser.browse_page[:] = page


def _shelved_run(backing: BackingQueue, page: list[int], count_max: int) -> Run | None:
    """Shelved messages that follow each other, from the end of the page.

    None when they have left the queue since the page was taken; they are off the page then.
    """
    first = page[-1]
    seq_ids = [first]
    while len(seq_ids) < min(count_max, len(page)) and page[-1 - len(seq_ids)] == first + len(seq_ids):
        seq_ids.append(first + len(seq_ids))
    found: list[tuple[int, Entry]] = []
    backing.ackfold(lambda seq_id, entry: found.append((seq_id, entry)), seq_ids)
    if not found:
        del page[-len(seq_ids) :]
        return None
    start = found[0][0]
    entries: list[Entry] = []
    size = 0
    for seq_id, entry in found:
        size += len(entry[1])
        if seq_id != start + len(entries) or (entries and size > limits.PULL_BYTES_MAX):
            break
        entries.append(entry)
    return Run(start, entries, False)
