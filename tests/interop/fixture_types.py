"""Names for the types of the interop fixtures."""

from __future__ import annotations

from collections.abc import Callable

import pika

Connect = Callable[..., pika.BlockingConnection]
Name = Callable[..., str]
