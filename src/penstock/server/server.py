"""The broker on a socket: listener, connections, the timers that all of them share, start and stop.

With a data folder the broker is opened in `start`, before a client is let in, and closed cleanly in `stop`, after all
are gone. A disk that fails for good ends the server: waiting clients are told that nothing is safe, and `disk_failed`
is called so that the program can stop it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
from collections.abc import Callable

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.memory.alarms import blocked_reason
from penstock.broker.operations.perform import Performer
from penstock.broker.operations.table import OPERATIONS
from penstock.clock import SystemClock
from penstock.config import SETTINGS, Config
from penstock.disk.spare_descriptors import SpareDescriptors
from penstock.errors import AmqpError, StartupError
from penstock.server.connection.admission import Admission
from penstock.server.connection.connection import Connection
from penstock.server.connection.login_guard import LoginGuard
from penstock.server.connection.password_checks import PasswordChecks
from penstock.server.control.control_listener import ControlListener
from penstock.server.descriptors import DescriptorBudget, descriptor_limit
from penstock.server.faults import Faults
from penstock.server.http.http import HttpListener
from penstock.server.http.http_answers import is_loopback
from penstock.server.load_definitions import load_definitions
from penstock.server.postgres.open import OpenPostgres, open_postgres
from penstock.server.settling.settlements import Settlements
from penstock.server.sync.open_store import MakeReader, MakeSyncer, best_syncer, open_broker
from penstock.server.sync.thread_reader import ThreadReader
from penstock.server.tls.contexts import TlsContexts
from penstock.server.tls.listener import TlsListener
from penstock.server.tls.pending import PendingTls
from penstock.server.turn.flow import PublisherFlow
from penstock.server.turn.parse_turns import ParseTurns
from penstock.server.turn.scheduler import Scheduler
from penstock.server.turn.store_turns import StoreTurns
from penstock.wire import methods
from penstock.wire.property_shapes import PropertyShapes

log = logging.getLogger("penstock.server")

# A dropped connection is gone after a turn or two of the loop.
DROPPED_S = 5.0


class Server:
    # Made in `start` when there is a data folder or a PostgreSQL.
    broker: Broker

    def __init__(
        self, config: Config, make_syncer: MakeSyncer = best_syncer, make_reader: MakeReader = ThreadReader
    ) -> None:
        self.config = config
        if config.data_dir is None and config.postgres_url is None:
            self.broker = Broker(config)
        # Why the disk is not used any more, and whom to tell.
        self.disk_error: OSError | None = None
        self.disk_failed: Callable[[], None] | None = None
        self.connections: set[Connection] = set()
        self.internal_errors = 0
        self.node_name = f"penstock@{socket.gethostname()}"
        self.loop: asyncio.AbstractEventLoop
        self.flow: PublisherFlow
        self.scheduler: Scheduler
        self.settlements: Settlements
        self.parse_turns: ParseTurns
        self.password_checks: PasswordChecks
        self.faults = Faults(self)
        self._make_syncer = make_syncer
        self._make_reader = make_reader
        self._store: StoreTurns | None = None
        self._postgres: OpenPostgres | None = None
        self._thread_id = 0
        self._listener: asyncio.Server | None = None
        self._tls_listener: TlsListener | None = None
        # None: there is no TLS.
        self._tls: TlsContexts | None = None
        self._http: HttpListener | None = None
        self._control: ControlListener | None = None
        # Listening sockets that were opened for us; the host and the port of the configuration do not count then.
        self.inherited: list[socket.socket] = []
        self._stopping = False
        self.budget = DescriptorBudget(config.descriptors_max or descriptor_limit(), config.connections_max)
        self.admission = Admission(self.budget, SystemClock())
        self.login_guard = LoginGuard(SystemClock(), config.login_refused_delay_s)
        self._spares = SpareDescriptors(0)
        self._are_descriptors_short = False
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._expiry_due_ms = -1
        self._alarm_timer: asyncio.TimerHandle | None = None
        # From all clients since memory was looked at last.
        self._received_bytes = 0
        # Half-received content and open transactions of all connections.
        self.partial_bytes = 0
        self._all_closed: asyncio.Event = asyncio.Event()

    async def start(self) -> None:
        """Open the data folder, and listen. Raises StartupError with what to do when it cannot."""
        self.loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self.flow = PublisherFlow(self.loop)
        # Of the properties that publishers send.
        self.property_shapes = PropertyShapes()
        self.scheduler = Scheduler(self.loop, self.flow, self.arm_expiry, SystemClock())
        if self.config.postgres_url is not None:
            self._postgres = open_postgres(self.config, self.loop, SystemClock(), self.scheduler.turn_soon)
        try:
            if self.config.data_dir is not None:
                self._open_store(self.config.data_dir)
            elif self._postgres is not None:
                self.broker = Broker(self.config, postgres=self._postgres.queues)
            self.password_checks = PasswordChecks(self.loop, self.broker.users, SystemClock())
            self.broker.elsewhere = self.password_checks.run
            self._listen_to_rights()
            self.settlements = Settlements(self.loop, self.broker.clock)
            self.parse_turns = ParseTurns(self.loop, self.broker.clock)
            self.broker.audit.wake = self._audit_soon
            if self.config.load_definitions is not None:
                load_definitions(self.broker, self.config.load_definitions, self.config.definitions_skip_if_unchanged)
            if self.config.data_dir is not None:
                self._control = ControlListener(Performer(self.broker, OPERATIONS), self.config.data_dir)
                await self._control.start()
            if self.config.tls_port is not None or self.config.http_tls:
                self._tls = TlsContexts(self.config)
            await self._listen()
            self._listen_for_tls()
            if self.config.http_port is not None:
                self._http = HttpListener(
                    self.config,
                    self.broker,
                    self.login_guard,
                    self.password_checks,
                    self.budget.http_connections,
                    self._tls if self.config.http_tls else None,
                )
                await self._http.start()
        except StartupError:
            await self._close_listeners()
            self._close_store()
            await self._close_postgres()
            raise
        self._check_alarms()
        self.arm_expiry()
        if self.budget.connections < self.config.connections_max:
            log.info(
                "the process may open %d files, so there can be %d connections (see ulimit -n, LimitNOFILE of systemd)",
                self.budget.total,
                self.budget.connections,
            )
        log.info("started TCP listener on %s:%d", self.host, self.port)
        if self.tls_port is not None:
            log.info("started TLS listener on %s:%d", self.config.host, self.tls_port)
        self._warn_of_clear_text()
        log.info("Server startup complete")

    def _warn_of_clear_text(self) -> None:
        if self.host == "localhost" or is_loopback(self.host):
            return
        if self.config.allow_clear_text_passwords:
            log.warning("passwords of clients on other machines cross the network in clear text: use --tls-port")
        else:
            log.warning(
                "clients on other machines can log in over TLS, or with SCRAM-SHA-256: passwords in clear text are"
                " refused unless the broker is started with --allow-clear-text-passwords"
            )

    async def _listen(self) -> None:
        config = self.config
        try:
            if self.inherited:
                self._listener = await self.loop.create_server(
                    lambda: Connection(self), sock=self.inherited[0], backlog=limits.ACCEPT_BACKLOG
                )
                return
            self._listener = await self.loop.create_server(
                lambda: Connection(self),
                config.host,
                config.port,
                backlog=limits.ACCEPT_BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise StartupError(
                f"cannot listen on {config.host}:{config.port}: {error.strerror or error}. {_listen_advice(error)}"
            ) from error
        except UnicodeError as error:
            raise StartupError(f"'{config.host}' is not a host name. Choose an address with --host.") from error

    def _listen_for_tls(self) -> None:
        config = self.config
        if self._tls is None or config.tls_port is None:
            return
        listener = TlsListener(self._tls, config.handshake_s, self._tls_connection, self._tls_failed)
        try:
            listener.bind(config.host, config.tls_port)
        except OSError as error:
            raise StartupError(
                f"cannot listen for TLS on {config.host}:{config.tls_port}: {error.strerror or error}. Choose another"
                " port with --tls-port."
            ) from error
        listener.start()
        self._tls_listener = listener

    def _tls_connection(self, pending: PendingTls) -> Connection | None:
        """Return a connection whose TLS handshake begins; its time is part of that of the login."""
        connection = Connection(self)
        connection.connection_made(pending)
        if not pending.is_closing():
            return connection
        connection.connection_lost(None)
        return None

    def _tls_failed(self, connection: asyncio.Protocol) -> None:
        if connection in self.connections:
            connection.connection_lost(None)

    @property
    def tls_port(self) -> int | None:
        """The port for AMQP within TLS; None when there is none."""
        return None if self._tls_listener is None else self._tls_listener.port

    @property
    def host(self) -> str:
        """The address it listens on, as it was configured; that of the socket when it was opened for us."""
        return str(self.inherited[0].getsockname()[0]) if self.inherited else self.config.host

    @property
    def port(self) -> int:
        """The port it listens on; the one that was chosen when the configuration says 0."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def http_port(self) -> int | None:
        """The port that history is served on; None when it is not."""
        return None if self._http is None else self._http.port

    def reload(self, config: Config) -> list[str]:
        """Take over what can change while clients are served; return the names of settings that count at a start."""
        changed = [row for row in SETTINGS.values() if getattr(config, row.name) != getattr(self.config, row.name)]
        for row in changed:
            if row.is_reloaded:
                for current in (self.config, self.broker.config):
                    setattr(current, row.name, getattr(config, row.name))
        self.broker.reload(config)
        if self._tls is not None:
            self._tls.reload(self.config)
        return [row.name for row in changed if not row.is_reloaded]

    async def stop_accepting(self) -> None:
        """Let no new client in. Those that are connected are served."""
        self._stopping = True
        if self._listener is not None:
            await self._stop_listening(self._listener)
        if self._tls_listener is not None:
            self._tls_listener.close()

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Stop listening, tell the clients why, wait for them a little, and cut those that do not answer."""
        await self._close_listeners()
        for connection in list(self.connections):
            if connection.opened and not connection.is_finished:
                connection.close_with(AmqpError(320, "broker forced connection closure with reason 'shutdown'"), 0)
            else:
                connection.drop()
        self._all_closed.clear()
        if self.connections:
            try:
                await asyncio.wait_for(self._all_closed.wait(), timeout_s)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.drop()
                await asyncio.wait_for(self._all_closed.wait(), DROPPED_S)
        for timer in (self._expiry_timer, self._alarm_timer):
            if timer is not None:
                timer.cancel()
        self.password_checks.close()
        self.settlements.finish()
        self.flow.close()
        self._close_store()
        await self._close_postgres()
        log.info("Server stopped")

    async def _close_listeners(self) -> None:
        await self.stop_accepting()
        http, self._http = self._http, None
        if http is not None:
            await http.stop()
        control, self._control = self._control, None
        if control is not None:
            await control.stop()
            self.internal_errors += control.internal_errors

    async def _stop_listening(self, listener: asyncio.Server) -> None:
        """Accept no more connections, and refuse those that were accepted a moment ago.

        asyncio makes their transports in a later turn of the loop, and fails to, without closing the socket, when the
        listener is closed by then (Server._attach). So it stops accepting first, and the listener is closed last.
        """
        for listening in listener.sockets:
            # Windows: not offered, nor needed.
            with contextlib.suppress(NotImplementedError):
                self.loop.remove_reader(listening.fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        listener.close()

    # --- the disk -------------------------------------------------------------------------------------

    def _open_store(self, data_dir: str) -> None:
        self._spares = SpareDescriptors(limits.DESCRIPTORS_SPARE)
        self.broker = open_broker(
            self.config,
            data_dir,
            self.loop,
            self._make_syncer,
            self._make_reader,
            self.scheduler.turn_soon,
            self._post,
            None if self._postgres is None else self._postgres.queues,
            self._spares,
            self.budget.open_files,
        )
        assert self.broker.node is not None
        for line in self.broker.recovery_report:
            log.warning("recovery: %s", ascii(line))
        log.info("data folder %s", data_dir)
        self._store = StoreTurns(
            self.loop, self.broker.clock, self.broker.node, self.scheduler.turn_soon, self._disk_failed
        )
        self.scheduler.store = self._store
        self.broker.node.journal.waiter_failed = self._waiter_failed
        self.flow.use_disk(self.broker.node, self.connections)
        # What recovery has gathered, and the first timer.
        self.scheduler.turn_soon()

    def _post(self, work: Callable[[], None]) -> None:
        """Run work on the broker's thread."""
        if threading.get_ident() == self._thread_id:
            work()
        else:
            self.loop.call_soon_threadsafe(work)

    def _audit_soon(self) -> None:
        self.loop.call_soon(self.broker.audit.flush)

    def _waiter_failed(self, error: Exception) -> None:
        """Something that waited for the disk failed when it was told. The others were told all the same."""
        log.error("internal error after a sync", exc_info=error)
        self.internal_errors += 1

    def _disk_failed(self, error: OSError) -> None:
        log.critical("the disk has failed: %s. Nothing more is written; the broker stops.", error)
        self.disk_error = error
        if self.disk_failed is not None:
            self.disk_failed()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.stop()
            self._store = self.scheduler.store = None
            self.broker.stop()
            self._check_stop()
        self._spares.close()

    def _check_stop(self) -> None:
        """Say so when the disk has failed during the stop, or has not answered in time."""
        error = None if self.broker.node is None else self.broker.node.failed
        if error is not None and self.disk_error is None:
            log.critical(
                "the stop is not clean: %s. What was not synced was not confirmed; the next start reads what is there.",
                error,
            )
            self.disk_error = error

    async def _close_postgres(self) -> None:
        postgres, self._postgres = self._postgres, None
        if postgres is not None:
            if self.config.data_dir is None and hasattr(self, "broker"):
                self.broker.stop()
            await postgres.stop()

    def abandon(self) -> None:
        """Let go of the disk and of the clients as a crash would; for tests."""
        for connection in list(self.connections):
            connection.drop()
        self.password_checks.close()
        self.settlements.abandon()
        self.broker.audit.abandon()
        control, self._control = self._control, None
        if control is not None:
            control.abandon()
        if self._store is not None:
            self._store.stop()
            self._store = self.scheduler.store = None
            assert self.broker.node is not None
            self.broker.node.abandon()
        self._spares.close()
        if self._postgres is not None:
            self._postgres.abandon()
            self._postgres = None

    # --- connections ----------------------------------------------------------------------------------

    def connection_opened(self, connection: Connection) -> bool:
        """Count a new connection; False when there are too many, or none is wanted any more."""
        if self._stopping:
            return False
        if self._spares.is_short or not self.admission.admit(connection):
            # Without a spare descriptor the store may need the one that this connection has.
            return False
        self.connections.add(connection)
        self.broker.memory.add(connection)
        return True

    def connection_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.broker.memory.remove(connection)
        self.flow.forget(connection)
        self.admission.closed(connection)
        if not self.connections:
            self._all_closed.set()

    def _listen_to_rights(self) -> None:
        self.broker.users.rights_changed = self._rights_changed
        self.broker.users.user_deleted = self._user_deleted
        self.broker.vhost_deleted = self._vhost_deleted

    def _rights_changed(self, name: str) -> None:
        for connection in self.admission.of_user(name):
            connection.rights_changed()

    def _user_deleted(self, name: str) -> None:
        self._force_closed(self.admission.of_user(name), f"user '{name}' is deleted")

    def _vhost_deleted(self, name: str) -> None:
        self._force_closed(self.admission.of_vhost(name), f"vhost '{name}' is deleted")

    def _force_closed(self, connections: list[Connection], reason: str) -> None:
        for connection in connections:
            connection.close_with(AmqpError(320, f"broker forced connection closure with reason '{reason}'"), 0)

    # --- alarms and expiry ----------------------------------------------------------------------------

    def first_publish(self, connection: Connection) -> None:
        """A connection became a publisher: if publishers are blocked now, so is it."""
        if self.broker.is_alarmed:
            self._block(connection)

    def _check_alarms(self) -> None:
        """Look at the alarms, and look again after a while, whatever this look comes to."""
        try:
            self._look_at_alarms()
        finally:
            if self._alarm_timer is not None:
                self._alarm_timer.cancel()
            self._received_bytes = 0
            self._alarm_timer = self.loop.call_later(limits.MEMORY_CHECK_S, self._check_alarms)

    def _look_at_alarms(self) -> None:
        broker = self.broker
        was_alarmed = broker.is_alarmed
        broker.tend_memory(self._received_bytes)
        for alarm in broker.alarms:
            if alarm.check():
                state = "set: publishers are blocked" if alarm.active else "cleared"
                log.warning("%s alarm %s", alarm.RESOURCE, state)
        if broker.is_alarmed != was_alarmed:
            for connection in list(self.connections):
                if connection.has_published and not connection.closing:
                    if was_alarmed:
                        self._unblock(connection)
                    else:
                        self._block(connection)
        self._tend_descriptors()

    def received(self, size: int) -> None:
        """A client has sent so many bytes. After many, memory is looked at: a lot can arrive between two timers."""
        self._received_bytes += size
        if self._received_bytes >= limits.MEMORY_CHECK_BYTES:
            self._check_alarms()

    def has_room_for_partial(self, size: int) -> bool:
        """Return whether so much more content may be half-received, over all connections."""
        most = max(int(self.config.memory_bytes_max * limits.PARTIAL_SHARE), limits.PARTIAL_CONTENT_BYTES_MAX // 2)
        return self.partial_bytes + size <= most

    def _tend_descriptors(self) -> None:
        """Take the spare descriptors again when there are some, and say when they are needed and when not."""
        was_short = self._are_descriptors_short
        self._spares.restore()
        self._are_descriptors_short = self._spares.is_short
        if self._are_descriptors_short and not was_short:
            log.warning("the process is out of file descriptors: new connections are refused until some are closed")
        elif was_short and not self._are_descriptors_short:
            log.warning("there are file descriptors again")

    def _block(self, connection: Connection) -> None:
        if connection.has_capability("connection.blocked"):
            connection.send(0, methods.ConnectionBlocked(blocked_reason(self.broker.alarms)))
        connection.stop_reading("alarm")

    def _unblock(self, connection: Connection) -> None:
        connection.resume_reading("alarm")
        if connection.has_capability("connection.blocked"):
            connection.send(0, methods.ConnectionUnblocked())

    def arm_expiry(self) -> None:
        """Set the timer for the next message that expires in any queue."""
        due_ms = self.broker.expiries.next_due_ms()
        if due_ms < 0 or (self._expiry_timer is not None and self._expiry_due_ms <= due_ms):
            return
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry_due_ms = due_ms
        delay_s = max(0, due_ms - self.broker.clock.wall_ms()) / 1000
        self._expiry_timer = self.loop.call_later(delay_s + 0.001, self._expire)

    def _expire(self) -> None:
        self._expiry_timer = None
        if self.flow.is_disk_behind():
            # What expires may be moved, and moves would be gathered without end.
            self._expiry_timer = self.loop.call_later(limits.DISK_BEHIND_S, self._expire)
            return
        try:
            self.broker.expiries.run_due(self.broker.clock.wall_ms())
            if self.flow.is_throttling():
                # A queue may have room again, and nothing else may happen that leads to a turn.
                self.flow.release()
        finally:
            # One that fails does not keep the others from their time.
            self.arm_expiry()


def _listen_advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "Is another broker running? Choose another port with --port."
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Ports below 1024 are for root: choose another one with --port."
    return "Choose an address of this machine with --host."
