"""The command line of the feature simulation: one seed in detail, or many seeds with progress.

python -m tests.simulation.features --seed 7              every step of one seed
python -m tests.simulation.features --seeds 100000        many seeds; those that fail are named
"""

from __future__ import annotations

import sys

from tests.simulation.__main__ import main
from tests.simulation.features.feature_simulation import run_seed

if __name__ == "__main__":
    sys.exit(main("tests.simulation.features", run_seed))
