"""An earlier penstock: its own source is what runs, and nothing is left of it afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benches.brokers import Penstock, penstock_environment
from benches.revision import RevisionError, checked_out


def test_the_source_of_the_revision_is_what_is_imported() -> None:
    with checked_out("HEAD") as kind:
        assert issubclass(kind, Penstock)
        command = [sys.executable, "-c", "import penstock; print(penstock.__file__)"]
        found = subprocess.run(
            command, env=penstock_environment(kind.source), capture_output=True, text=True, check=True
        )
        assert Path(found.stdout.strip()).is_relative_to(kind.source)
        assert kind.source != Penstock.source
    assert not kind.source.exists()


@pytest.mark.parametrize("name", ["no-such-revision", "--all"])
def test_what_is_no_revision_is_refused(name: str) -> None:
    with pytest.raises(RevisionError), checked_out(name):
        pass
