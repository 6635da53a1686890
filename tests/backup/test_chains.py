"""Incremental backups: what they write, and what a chain of them can restore."""

from __future__ import annotations

import pytest

from penstock.backup.archive.folder_archive import FolderArchive
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import Manifest
from penstock.backup.progress import Progress
from penstock.backup.restoring.chain import Chain
from penstock.backup.restoring.plan import Moment, make_plan
from penstock.backup.restoring.verifying import verify
from tests.backup.house import House, chain_of, contents_of, restored
from tests.disk.sim_files import SimFiles
from tests.effort import examples

HUGE = 1 << 40
POINTS_MAX = 12


def make_chain(house: House, links: int) -> Chain:
    """Back the house up again and again, each time with what the last backup does not have."""
    backups: list[tuple[Manifest, SimFiles]] = []
    base: Manifest | None = None

    def meanwhile(phase: str) -> None:
        house.act()

    for _ in range(links):
        for _ in range(15):
            house.act()
        target = SimFiles()
        base = house.back_up(target, base, meanwhile)
        backups.append((base, target))
    return chain_of(*backups)


def refusal_of(chain: Chain, lsn: int) -> str:
    try:
        restored(chain, lsn)
    except BackupError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(examples(16, 1000)))
def test_a_chain_restores_what_was_held_or_says_that_it_cannot(seed: int) -> None:
    house = House(seed)
    chain = make_chain(house, 3)
    assert verify(chain, Progress()) == []
    windows = [(link.manifest.first_lsn, link.manifest.last_lsn) for link in chain.links]
    points = sorted(lsn for lsn in house.points if windows[0][0] <= lsn <= windows[-1][1])
    for lsn in house.rng.sample(points, min(POINTS_MAX, len(points))):
        if not any(first <= lsn <= last for first, last in windows):
            # Journal, or a large message, may have been removed between two backups.
            refusal = refusal_of(chain, lsn)
            if refusal:
                assert "the chain has no journal" in refusal or "errors would be" in refusal
                continue
        done, files = restored(chain, lsn)
        assert done.lsn == lsn
        assert contents_of(files, house.profile) == house.points[lsn]


@pytest.mark.parametrize("seed", range(examples(8)))
def test_with_all_history_kept_every_moment_between_two_backups_can_be_restored(seed: int) -> None:
    house = House(seed)
    house.node.store.options.retention_bytes = HUGE
    house.node.store.options.retention_s = float(HUGE)
    # No large messages: their files go when nobody wants them.
    house.node.store.options.embed_below = 0
    chain = make_chain(house, 3)
    first, last = chain.links[0].manifest.first_lsn, chain.newest.last_lsn
    points = sorted(lsn for lsn in house.points if first <= lsn <= last)
    for lsn in house.rng.sample(points, min(POINTS_MAX, len(points))):
        done, files = restored(chain, lsn)
        assert done.lsn == lsn
        assert contents_of(files, house.profile) == house.points[lsn]


def test_what_has_not_changed_is_not_written_again() -> None:
    house = House(3)
    for _ in range(60):
        house.act()
    full = SimFiles()
    base = house.back_up(full)
    target = SimFiles()
    manifest = house.back_up(target, base)
    own = FolderArchive(target, "target").paths()
    assert {path.partition("/")[0] for path in own} <= {"checkpoint", "journal"}
    assert len([path for path in own if path.startswith("journal/")]) <= 1
    again = {file.path for file in manifest.files if file.backup_id == base.id}
    assert len(again) >= len(base.files) - 2


def test_a_moment_that_the_chain_does_not_have_is_refused_with_what_it_has() -> None:
    house = House(5)
    chain = make_chain(house, 2)
    first, last = chain.links[0].manifest.first_lsn, chain.newest.last_lsn
    for lsn in (first - 1, last + 1):
        with pytest.raises(BackupError, match=f"it can be restored to LSNs from {first} to {last}"):
            make_plan(chain, Moment(lsn))
    with pytest.raises(BackupError, match="it can be restored to times from"):
        make_plan(chain, Moment(wall_us=chain.links[0].manifest.first_us - 1))
    with pytest.raises(BackupError, match="it can be restored to times from"):
        make_plan(chain, Moment(wall_us=chain.newest.last_us + 1))


def test_a_backup_of_another_broker_is_not_added_to() -> None:
    one, other = House(1), House(2)
    one.act()
    other.act()
    base = one.back_up(SimFiles())
    other_base = Manifest(**{**{name: getattr(base, name) for name in base.__slots__}, "log_id": "0" * 32})
    with pytest.raises(BackupError, match="of another broker"):
        other.back_up(SimFiles(), other_base)
