"""The helpers of the fuzz tests assert too: pytest is to show what their assertions compared."""

from __future__ import annotations

import pytest

for name in ("census", "cutting", "server_frames", "socket_clients", "socketless"):
    pytest.register_assert_rewrite(f"tests.fuzz.{name}")
