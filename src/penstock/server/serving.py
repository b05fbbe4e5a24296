"""The HTTP server itself: uvicorn, with a time limit for headers and a way to cut off who does not listen."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.server.guard import Guard, Receive, Scope, Send
from penstock.server.limits import Limits

#: Where an application finds the function that cuts its caller off at once.
ABORT = "penstock.abort"
#: Requests with longer lines or more headers are refused.
_HEADER_BYTES = 16 << 10
_SEND_BYTES = 64 << 10


class Serving:
    """A server that runs in its own thread, or in this one until it is asked to stop."""

    def __init__(self, host: str, port: int, limits: Limits) -> None:
        self._limits = limits
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What the system holds for a client that does not read; connections have it from here.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        try:
            self._socket.bind((host, port))
            self._socket.listen(1024)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._server: _Server | None = None
        #: Whether it was asked to stop, perhaps before it began.
        self.asked = False
        self._thread: threading.Thread | None = None

    def _config(self, app: Guard) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http=_protocol(self._limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=self._limits.connections,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=3,
        )

    def start(self, app: Guard) -> None:
        """Serve in a thread of its own."""
        self._server = _Server(self._config(app), app.close)
        self._thread = threading.Thread(target=self._serve, name="penstock-http", daemon=True)
        self._thread.start()

    def run(self, app: Guard) -> None:
        """Serve in this thread, until it is asked to stop."""
        self._server = _Server(self._config(app), app.close)
        if not self.asked:
            self._serve()

    def ask_to_stop(self) -> None:
        """Take no new calls, and end; those who follow are cut off after a moment."""
        self.asked = True
        if self._server is not None:
            self._server.should_exit = True

    def stop(self) -> None:
        """End, and wait for it."""
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join(30)
        self._socket.close()

    def _serve(self) -> None:
        assert self._server is not None
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, close: Callable[[], None]) -> None:
        super().__init__(config)
        self._close = close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams of events end by themselves; uvicorn would wait, cut them off, and tell of each with a trace."""
        self._close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: a program that was asked to end ends with code 0."""
        yield


def _protocol(limits: Limits) -> type[H11Protocol]:
    class Limited(H11Protocol):
        """A connection whose next request must be there in time."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._late: asyncio.TimerHandle | None = None
            inner = self.app

            async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
                scope[ABORT] = self.transport.abort
                await inner(scope, receive, send)

            self.app = with_abort

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unexpect()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:
                self._unexpect()

        def data_received(self, data: bytes) -> None:
            if getattr(self.cycle, "response_complete", False) and self._late is None:
                self._expect()  # the first bytes of another request
            super().data_received(data)

        def _expect(self) -> None:
            self._late = self.loop.call_later(limits.header_seconds, self.transport.abort)

        def _unexpect(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Limited
