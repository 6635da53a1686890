"""What the tests of sessions over PostgreSQL share: both faces on a database of their own, and a way to look behind."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.client.any_driver import FACES, Place, opened


@pytest.fixture(params=FACES)
def database(request: pytest.FixtureRequest, penstock_url: str) -> Iterator[Place]:
    """A database with penstock's schema, seen through each of the faces."""
    with opened(penstock_url, request.param) as place:
        yield place


@pytest.fixture
def plain(penstock_url: str) -> Iterator[psycopg.Connection]:
    """A connection to that database, as an application without penstock has it; in autocommit."""
    with psycopg.connect(penstock_url, autocommit=True) as connection:
        yield connection
