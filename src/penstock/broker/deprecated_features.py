"""What RabbitMQ has deprecated: who uses it is counted, and the settings say whether it is refused.

RabbitMQ answers 541 to a feature that it does not permit, with this text; a reply text has 255 octets, so clients read
its beginning. A line about each feature is logged once a day, as RabbitMQ does.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from penstock.clock import Clock
from penstock.config import DEPRECATED, GLOBAL_QOS, STRICT, TRANSIENT_QUEUES, Config
from penstock.errors import ConnectionException

log = logging.getLogger("penstock.deprecated")

LOGGED_MS: Final = 24 * 3600 * 1000
NEVER_MS: Final = -LOGGED_MS
ABOUT: Final = {
    TRANSIENT_QUEUES: "queues that are neither durable nor exclusive",
    GLOBAL_QOS: "basic.qos with global = true",
}
DENIED: Final = (
    "Feature `{0}` is deprecated.\n"
    "By default, this feature is not permitted anymore.\n"
    "The feature will be removed from a future major RabbitMQ version, regardless of the configuration; actual version"
    " to be determined.\n"
    "To continue using this feature when it is not permitted by default, set the following parameter in your"
    " configuration:\n"
    '    "deprecated_features.permit.{0} = true"'
)


class DeprecatedFeatures:
    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._counts = dict.fromkeys(DEPRECATED, 0)
        self._refused = dict.fromkeys(DEPRECATED, 0)
        # The last use, for people.
        self._last: dict[str, tuple[int, str]] = {}
        self._logged_ms = dict.fromkeys(DEPRECATED, NEVER_MS)

    def is_permitted(self, feature: str) -> bool:
        config = self._config
        if config.compatibility == STRICT:
            return feature in config.deprecated_permitted
        return feature not in config.deprecated_denied

    def use(self, feature: str, by: str) -> None:
        """Note that a client uses a feature; raises 541 when that is not permitted. `by` says who, for people."""
        now_ms = self._clock.wall_ms()
        is_permitted = self.is_permitted(feature)
        self._counts[feature] += 1
        self._last[feature] = (now_ms, by)
        if now_ms - self._logged_ms[feature] >= LOGGED_MS:
            self._logged_ms[feature] = now_ms
            state = "used" if is_permitted else "refused, tried"
            level = logging.INFO if is_permitted else logging.WARNING
            log.log(level, "deprecated: %s (%s): %s by %s", ABOUT[feature], feature, state, ascii(by))
        if not is_permitted:
            self._refused[feature] += 1
            raise ConnectionException(541, DENIED.format(feature))

    def list(self) -> list[dict[str, Any]]:
        """Return every feature, whether it is permitted, and its use since the start."""
        return [
            {
                "name": feature,
                "desc": ABOUT[feature],
                "permitted": self.is_permitted(feature),
                "used": self._counts[feature],
                "refused": self._refused[feature],
                "last_used_ms": self._last[feature][0] if feature in self._last else None,
                "last_used_by": self._last[feature][1] if feature in self._last else None,
            }
            for feature in DEPRECATED
        ]
