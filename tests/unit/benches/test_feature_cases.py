"""Each case of a feature runs, small: a penstock, the load generator, and every message accounted for."""

from __future__ import annotations

import shutil

import pytest
from benches.brokers import Penstock
from benches.cases import BY_NAME, FEATURE_KINDS
from benches.features import measure_feature
from benches.load import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator needs a C compiler"),
]
MESSAGES = 2_000
CASES = [case.name for case in BY_NAME.values() if case.kind in FEATURE_KINDS]


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_a_feature_accounts_for_every_message(name: str) -> None:
    build()
    with Penstock() as broker:
        repeat = measure_feature(broker, BY_NAME[name], 0, MESSAGES)
    assert repeat.error is None
    assert repeat.metrics["messages"] == MESSAGES
