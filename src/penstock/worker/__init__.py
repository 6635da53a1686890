"""Jobs: functions that are put onto queues, and the worker that runs them (`penstock work`). See docs/jobs.md."""

from penstock.worker.jobs.backoff import Backoff
from penstock.worker.jobs.job import Job, job

__all__ = ["Backoff", "Job", "job"]
