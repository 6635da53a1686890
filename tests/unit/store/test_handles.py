"""The handle cache: few open files for many owners, each closed only by its owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.disk.sim_files import SimFiles

from penstock.store.shared.handles import HandleCache, HandleOwner


class Owner(HandleOwner):
    """Notes what it is asked for; closes at once only if told so."""

    def __init__(self, cache: HandleCache, at_once: bool = False) -> None:
        self.cache = cache
        self.at_once = at_once
        self.asked: list[str] = []

    def handle_wanted_back(self, path: str) -> None:
        self.asked.append(path)
        if self.at_once:
            self.cache.close(self, path)


@pytest.fixture
def files() -> SimFiles:
    machine = SimFiles()
    for name in "abcde":
        machine.create(name).close()
    return machine


def is_open(use: Callable[[], object]) -> bool:
    try:
        use()
    except OSError:
        return False
    return True


def test_an_open_file_is_handed_out_again(files: SimFiles) -> None:
    cache = HandleCache(files)
    owner = Owner(cache)
    assert cache.open(owner, "a") is cache.open(owner, "a")
    assert cache.status() == {
        "open": 1,
        "open_max": 1,
        "limit": 512,
        "waiting_for": 0,
        "found": 1,
        "opened": 1,
        "asked_back": 0,
    }


def test_each_owner_has_handles_of_its_own(files: SimFiles) -> None:
    cache = HandleCache(files)
    one, other = Owner(cache), Owner(cache)
    mine, theirs = cache.open(one, "a"), cache.open(other, "a")
    assert mine is not theirs
    cache.close(one, "a")
    assert not is_open(mine.size)
    assert is_open(theirs.size)


def test_a_missing_file_is_made_only_when_asked_for(files: SimFiles) -> None:
    cache = HandleCache(files, limit=1)
    owner = Owner(cache)
    with pytest.raises(FileNotFoundError):
        cache.open(owner, "new")
    assert len(cache) == 0
    assert cache.open(owner, "new", create=True).size() == 0


def test_the_file_that_was_used_longest_ago_is_asked_back_from_its_owner(files: SimFiles) -> None:
    cache = HandleCache(files, limit=2)
    one, other = Owner(cache), Owner(cache)
    cache.open(one, "a")
    cache.open(other, "b")
    cache.open(one, "a")
    cache.open(one, "c")
    assert (one.asked, other.asked) == ([], ["b"])


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_limit_holds_with_owners_that_close_at_once(files: SimFiles, limit: int) -> None:
    cache = HandleCache(files, limit)
    owners = [Owner(cache, at_once=True), Owner(cache, at_once=True)]
    for turn in range(40):
        assert is_open(cache.open(owners[turn % 2], "abcde"[turn % 5]).size)
        assert len(cache) <= limit
    assert cache.status()["open_max"] == limit


def test_a_handle_that_was_asked_back_works_until_its_owner_closes_it_and_is_asked_for_once(files: SimFiles) -> None:
    cache = HandleCache(files, limit=1)
    slow, other = Owner(cache), Owner(cache, at_once=True)
    file = cache.open(slow, "a")
    cache.open(other, "b")
    cache.open(other, "c")
    assert cache.open(slow, "a") is file
    assert is_open(file.size)
    assert slow.asked == ["a"]
    assert (cache.status()["open"], cache.status()["waiting_for"]) == (2, 1)
    cache.close(slow, "a")
    assert not is_open(file.size)
    assert (cache.status()["open"], cache.status()["waiting_for"]) == (1, 0)
    assert is_open(cache.open(slow, "a").size)


def test_closing_everything_of_one_owner_leaves_the_others(files: SimFiles) -> None:
    cache = HandleCache(files, limit=2)
    one, other = Owner(cache), Owner(cache)
    mine = [cache.open(one, name) for name in "abc"]
    theirs = cache.open(other, "a")
    cache.close_all(one)
    assert [is_open(file.size) for file in mine] == [False, False, False]
    assert is_open(theirs.size)
    cache.close_all(one)
    cache.close(one, "a")
    assert len(cache) == 1


def test_a_detached_handle_stays_open_and_is_no_longer_known(files: SimFiles) -> None:
    cache = HandleCache(files)
    owner = Owner(cache)
    file = cache.open(owner, "a")
    assert cache.detach(owner, "a") is file
    assert cache.detach(owner, "a") is None
    assert is_open(file.size)
    assert len(cache) == 0
    assert cache.open(owner, "a") is not file
