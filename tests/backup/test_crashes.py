"""A machine that goes down at any call while a backup is made, or restored, leaves nothing that looks like one."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.backup.archive.folder_archive import FolderArchive
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import MANIFEST_NAME, decode_manifest
from penstock.backup.progress import Progress
from penstock.backup.restoring.plan import Moment
from penstock.backup.restoring.restoring import Restoring
from penstock.backup.restoring.verifying import verify
from penstock.errors import StartupError
from penstock.store.inspect.fsck import ERROR, fsck
from penstock.store.node.node_store import LOCK_PATH
from penstock.store.recovery.recovery import RESTORING_PATH
from tests.backup.house import House, chain_of, contents_of, restored
from tests.disk.sim_files import FaultPlan, SimCrash, SimFiles, Survival
from tests.effort import some

SURVIVALS = [Survival.NOTHING, Survival.EVERYTHING]
# What a folder may have before a restore has begun to write.
NOTHING_YET = {LOCK_PATH, "restoring.tmp"}


def busy_house() -> House:
    house = House(4)
    for _ in range(25):
        house.act()
    return house


def calls_of_a_backup() -> int:
    target = SimFiles()
    busy_house().back_up(target)
    return len(target.calls)


def calls_of_a_restore() -> int:
    house, source = busy_house(), SimFiles()
    manifest = house.back_up(source)
    target = SimFiles()
    restored(chain_of((manifest, source)), manifest.last_lsn, target)
    return len(target.calls)


@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_backup_that_was_cut_off_is_none_or_whole(survival: Survival) -> None:
    whole = 0
    last = calls_of_a_backup()
    for call in [*some(range(1, last)), last]:
        for after in (False, True):
            house = busy_house()
            target = SimFiles(FaultPlan(survival, crash_at=call, crash_after=after))
            with suppress(SimCrash):
                house.back_up(target)
            left = target.crash(lambda count: 0)
            archive = FolderArchive(left, "left")
            if MANIFEST_NAME not in left.list_dir(""):
                with pytest.raises(BackupError, match="no manifest"):
                    archive.manifest_bytes()
                continue
            manifest = decode_manifest(archive.manifest_bytes(), "left")
            whole += 1
            chain = chain_of((manifest, left))
            assert verify(chain, Progress()) == []
            assert contents_of(restored(chain)[1], house.profile) == house.points[manifest.last_lsn]
    assert whole >= 1 or survival is Survival.NOTHING


@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_restore_that_was_cut_off_is_refused_by_a_start_or_has_not_begun(survival: Survival) -> None:
    house, source = busy_house(), SimFiles()
    manifest = house.back_up(source)
    expected = house.points[manifest.last_lsn]
    refused = 0
    last = calls_of_a_restore()
    for call in [*some(range(1, last)), last]:
        for after in (False, True):
            target = SimFiles(FaultPlan(survival, crash_at=call, crash_after=after))
            chain = chain_of((manifest, source))
            with suppress(SimCrash):
                Restoring(chain, target, "target").run(Moment(manifest.last_lsn))
            left = target.crash(lambda count: 0)
            if set(left.list_dir("")) <= NOTHING_YET:
                continue
            if left.exists(RESTORING_PATH):
                with pytest.raises(StartupError, match="did not come to its end"):
                    contents_of(left.copy(), house.profile)
                assert [each.severity for each in fsck(left).findings] == [ERROR]
                with pytest.raises(BackupError, match="is not empty"):
                    restored(chain, None, left)
                refused += 1
            else:
                assert contents_of(left, house.profile) == expected
    assert refused > 5


def test_a_full_disk_ends_a_backup_with_nothing_left_of_it() -> None:
    house = busy_house()
    target = SimFiles(FaultPlan(capacity_bytes=6000))
    with pytest.raises(BackupError, match="the backup is given up"):
        house.back_up(target)
    assert target.contents() == {}
    assert not house.node.store.removals.is_active()


def test_a_backup_whose_lease_lapsed_is_given_up() -> None:
    house = busy_house()
    target = SimFiles()

    def meanwhile(phase: str) -> None:
        if phase == "audit log":
            house.node.store.removals.break_all()

    with pytest.raises(BackupError, match="the lease has lapsed"):
        house.back_up(target, meanwhile=meanwhile)
    assert "manifest.json" not in target.contents()


def test_a_long_backup_renews_its_lease() -> None:
    house = busy_house()
    for _ in range(50):
        house.act()

    def meanwhile(phase: str) -> None:
        # A lease lasts a minute: seven such steps are more.
        house.clock.advance(10)

    steps = 0

    def counting(phase: str) -> None:
        nonlocal steps
        steps += 1
        meanwhile(phase)

    manifest = house.back_up(SimFiles(), meanwhile=counting)
    assert steps > 7
    assert manifest.last_lsn > 0
