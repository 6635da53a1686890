"""What `import penstock` brings, and what it leaves for later."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock


def test_importing_the_package_imports_no_room_and_no_driver() -> None:
    program = "import sys, penstock; print([name for name in sys.modules if name.startswith(('penstock.', 'psycopg'))])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_a_session_does_not_import_what_its_url_does_not_ask_for() -> None:
    program = (
        "import sys, penstock; penstock.Session('postgresql://localhost/x');"
        "print([name for name in sys.modules if name.startswith(('penstock.broker', 'penstock.client.aio'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_name_that_is_exported_is_there(name: str) -> None:
    assert getattr(penstock, name) is not None


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Sesion'"):
        penstock.Sesion  # noqa: B018
