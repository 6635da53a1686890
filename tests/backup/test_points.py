"""A node works while it is backed up; what is restored is what it held at the chosen LSN, whatever it did meanwhile."""

from __future__ import annotations

import pytest

from tests.backup.house import House, chain_of, contents_of, restored
from tests.disk.sim_files import SimFiles
from tests.effort import examples

# Of one backup; each is restored and started.
POINTS_MAX = 6


@pytest.mark.parametrize("seed", range(examples(40, 2000)))
def test_each_point_of_a_backup_is_what_the_node_held_then(seed: int) -> None:
    house = House(seed)
    for _ in range(30):
        house.act()
    target = SimFiles()

    def meanwhile(phase: str) -> None:
        for _ in range(3):
            house.act()

    manifest = house.back_up(target, meanwhile=meanwhile)
    chain = chain_of((manifest, target))
    points = sorted(lsn for lsn in house.points if manifest.first_lsn <= lsn <= manifest.last_lsn)
    assert manifest.last_lsn in points
    some_points = house.rng.sample(points, min(len(points), POINTS_MAX))
    for lsn in [points[0], *some_points, None]:
        done, files = restored(chain, lsn)
        assert done.lsn == (manifest.last_lsn if lsn is None else lsn)
        assert contents_of(files, house.profile) == house.points[done.lsn]
