"""Cron expressions: five fields, or a word like @daily, and the moments that they mean in a time zone.

Fields are minute, hour, day of the month, month and day of the week: `*`, a number, a range `1-5`, a list `1,3,10-12`,
a step `*/5` or `10-50/20`. Months and days of the week also have names of three letters; Sunday is 0 and 7. When both
day fields are restricted (neither begins with `*`), a day that fits one of them is enough, as in every cron.

Where clocks are put forward, a time that is left out counts as the same time after the gap: 02:30 is 03:30 that day.
Where clocks are put back, a time that comes twice is taken once, the first time; but with `*` as the hour both times.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# 29 February may be eight years away, when a century is no leap year.
_DAYS_AHEAD_MAX = 8 * 366 + 1
# A day that was left out altogether (Samoa, 30 December 2011) counts a day later.
_DAYS_BACK = 2


class CronError(ValueError):
    """The expression cannot be read; the text says why."""


class Cron:
    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        fields = _WORDS.get(self.text.lower(), self.text).split()
        if len(fields) != 5:
            words = ", ".join(_WORDS)
            raise CronError(f"cron {text!r}: five fields (minute hour day month weekday), or one of {words}")
        minute, hour, day, month, weekday = fields
        self._minutes = sorted(_parse(minute, "minute", 0, 59))
        self._hours = sorted(_parse(hour, "hour", 0, 23))
        self._days = _parse(day, "day", 1, 31)
        self._months = _parse(month, "month", 1, 12, _MONTHS, 1)
        self._weekdays = {number % 7 for number in _parse(weekday, "weekday", 0, 7, _WEEKDAYS, 0)}
        self._either_day = not day.startswith("*") and not weekday.startswith("*")
        self._every_hour = hour in ("*", "*/1")
        if not self._ever():
            raise CronError(f"cron {text!r}: there is no such day in any year")

    def __repr__(self) -> str:
        return f"Cron({self.text!r})"

    def next_after(self, moment: datetime, zone: tzinfo = UTC) -> datetime:
        """Return the first moment after this one, in UTC."""
        start = moment.astimezone(zone).date()
        first: datetime | None = None
        for ahead in range(-_DAYS_BACK, _DAYS_AHEAD_MAX):
            day = start + timedelta(days=ahead)
            if self._is_day(day):
                later = [slot for slot in self._slots(day, zone) if slot > moment]
                if later and (first is None or min(later) < first):
                    first = min(later)
            # The day after may still have an earlier one: what a gap moved came from the day before.
            if first is not None and day > first.astimezone(zone).date():
                break
        assert first is not None, "an expression that never comes was refused"
        return first

    def last_until(self, moment: datetime, zone: tzinfo = UTC) -> datetime:
        """Return the last moment that is not after this one, in UTC."""
        start = moment.astimezone(zone).date()
        last: datetime | None = None
        for back in range(-1, _DAYS_AHEAD_MAX):
            day = start - timedelta(days=back)
            if self._is_day(day):
                earlier = [slot for slot in self._slots(day, zone) if slot <= moment]
                if earlier and (last is None or max(earlier) > last):
                    last = max(earlier)
            if last is not None and day < last.astimezone(zone).date() - timedelta(days=_DAYS_BACK):
                break
        assert last is not None, "an expression that never comes was refused"
        return last

    def _is_day(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        in_month = day.day in self._days
        in_week = day.isoweekday() % 7 in self._weekdays
        return in_month or in_week if self._either_day else in_month and in_week

    def _slots(self, day: date, zone: tzinfo) -> list[datetime]:
        """Its moments on a day of the zone's calendar, in no order."""
        found = []
        for hour in self._hours:
            for minute in self._minutes:
                wall = datetime.combine(day, time(hour, minute), zone)
                # In a gap this is as many minutes after it as the wall clock wanted to be after its beginning.
                slot = wall.astimezone(UTC)
                found.append(slot)
                if self._every_hour:
                    again = wall.replace(fold=1).astimezone(UTC)
                    if again > slot:
                        found.append(again)
        return found

    def _ever(self) -> bool:
        """Return whether one of its days is in the calendar; 2000 was a leap year."""
        if self._either_day:
            return True
        longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
        return any(min(self._days) <= longest.get(month, 31) for month in self._months)


def _parse(field: str, what: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0) -> set[int]:
    """Return the numbers that a field means."""
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, what, 1, high) if slash else 1
        if span == "*":
            start, end = low, high
        else:
            start_text, dash, end_text = span.partition("-")
            start = _number(start_text, what, low, high, names, first)
            end = _number(end_text, what, low, high, names, first) if dash else start
            if slash and not dash:
                raise CronError(f"cron {what} {part!r}: a step needs a range, for example {start}-{high}/{step}")
            if end < start:
                raise CronError(f"cron {what} {part!r}: a range goes upwards; write two of them with a comma")
        found.update(range(start, end + 1, step))
    return found


def _number(text: str, what: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + first
    # isdecimal alone would take digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= 2 and low <= int(text) <= high):
        known = f", or one of {', '.join(names)}" if names else ""
        raise CronError(f"cron {what} {text!r}: a number from {low} to {high}{known}")
    return int(text)
