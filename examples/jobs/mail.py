"""Two jobs. `penstock work --app mail` runs them; see README.md."""

from __future__ import annotations

from penstock.worker import Backoff, job


@job(queue="mail", max_attempts=5, backoff=Backoff(first_s=1.0), timeout=30)
def send(to: str, subject: str = "Hello") -> dict[str, str]:
    """What it returns is the note of the message in the history."""
    if "@" not in to:
        raise ValueError(f"{to!r} is no address")
    return {"sent": to, "subject": subject}


@job(queue="mail", cron="0 7 * * mon-fri")
def remind() -> str:
    """Put by the clock, once for all workers."""
    return "everybody was reminded"
