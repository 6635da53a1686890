"""penstock: the message broker that remembers. RabbitMQ-compatible, in Python.

Sessions over queues are here too (`penstock.Session`, docs/sessions.md). They are loaded when somebody asks for them,
so that the broker and the command start without them.
"""

__version__ = "0.1.0"

__all__ = [
    "AsyncSession",
    "ClientError",
    "Closed",
    "ConnectionLost",
    "Message",
    "NotReserved",
    "NotSupported",
    "QueueStats",
    "Session",
    "SetupMissing",
    "__version__",
]

# As in `typing`, whose import would take longer than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from penstock.client.aio.session import AsyncSession
    from penstock.client.errors import ClientError, Closed, ConnectionLost, NotReserved, NotSupported, SetupMissing
    from penstock.client.message import Message, QueueStats
    from penstock.client.sync.session import Session
else:

    def __getattr__(name: str) -> object:
        """Load what is asked for, and what belongs to it."""
        if name not in __all__:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        if name == "Session":
            from penstock.client.sync import session as module
        elif name == "AsyncSession":
            from penstock.client.aio import session as module
        elif name in ("Message", "QueueStats"):
            from penstock.client import message as module
        else:
            from penstock.client import errors as module
        globals()[name] = vars(module)[name]
        return globals()[name]
