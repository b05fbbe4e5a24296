"""What stands before every call: who asks, from where, with how much, and what an answer may do in a browser.

Written against ASGI itself, so that nothing of a request is read, parsed or routed before it was let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import PenstockError
from penstock.server.auth import Token
from penstock.server.limits import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("penstock.server")

#: No inline script or style, nothing from elsewhere, in no frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
#: Said of what nobody expected.
FAILED = "The server failed at this call; its log says why."
#: Of a body that is too large, so many times the most that one may have is still taken from the wire.
_DRAINED = 16
#: The page and what belongs to it say nothing by themselves: the browser asks for everything else, with the token.
OPEN = ("/", "/favicon.ico")
OPEN_BELOW = "/page/"


class Refused(Exception):
    """A call that is not let in, with the status and what the caller is told; `unread`, where its body still comes."""

    def __init__(self, status: int, what: str, do: str = "", *, unread: bool = False) -> None:
        super().__init__(what)
        self.status = status
        self.unread = unread
        self.body = {"error": {"kind": "Refused", "what": what, "why": "", "do": do}}


def told(error: PenstockError) -> dict[str, Any]:
    """An error of ours as a caller sees it."""
    said: dict[str, Any] = {"kind": type(error).__name__, "what": error.what, "why": error.why, "do": error.do}
    for place in ("line", "column"):
        if hasattr(error, place):
            said[place] = getattr(error, place)
    return {"error": said}


class Guard:
    """Lets calls through to the application, or answers them itself."""

    def __init__(
        self, app: App, token: Token, hosts: frozenset[str], limits: Limits, close: Callable[[], None]
    ) -> None:
        self._app = app
        #: Ends what goes on until it is ended.
        self.close = close
        self._token = token
        self._hosts = hosts
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        began = ended = False

        async def headed(message: Message) -> None:
            nonlocal began, ended
            if message["type"] == "http.response.start":
                began = True
                ours = {name for name, _ in HEADERS}
                message["headers"] = [*(h for h in message.get("headers", ()) if h[0].lower() not in ours), *HEADERS]
            await send(message)
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            has_body = self._check(scope)
            await self._app(scope, _replay(await self._body(receive), receive) if has_body else receive, headed)
        except Refused as refused:
            if not began:
                if refused.unread:
                    await self._drain(receive)
                await answer(headed, refused.status, refused.body)
        except PenstockError as error:
            if not began:
                await answer(headed, 400, told(error))
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if ended:
                return  # it was told; the connection may go on
            if began:
                raise
            await answer(headed, 500, Refused(500, FAILED).body)

    def _check(self, scope: Scope) -> bool:
        """Refuse, or say whether a body comes."""
        headers = scope["headers"]
        found = {name: value.decode("latin-1") for name, value in headers}
        hosts = [value for name, value in headers if name == b"host"]
        host = found.get(b"host", "")
        if len(hosts) != 1 or host.lower() not in self._hosts:
            raise Refused(421, f"This server does not answer for the host {host!r}.", "Use an address that it printed.")
        # All of them: of a header that comes twice, the second must not hide the first.
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        sites = {value for name, value in headers if name == b"sec-fetch-site"}
        if not all(_is_of(origin, host) for origin in origins) or sites & {b"cross-site", b"same-site"}:
            raise Refused(403, "Pages of other origins may not call this server.")
        path, method = scope["path"], scope["method"]
        is_page = path in OPEN or path.startswith(OPEN_BELOW)
        if not (is_page and method in ("GET", "HEAD")) and not self._token.fits(_bearer(found.get(b"authorization"))):
            raise Refused(401, "This call has no token, or not the right one.", "Send Authorization: Bearer <token>.")
        size = found.get(b"content-length", "0")
        if not size.isdigit() or int(size) > self._limits.body:
            raise self._too_large(unread=True)
        has_body = size != "0" or b"transfer-encoding" in found
        kind = found.get(b"content-type", "").partition(";")[0].strip().lower()
        if has_body and kind != "application/json":
            raise Refused(415, "Bodies are JSON.", "Send Content-Type: application/json.")
        return has_body

    def _too_large(self, *, unread: bool) -> Refused:
        return Refused(413, f"A body has at most {self._limits.body:,} bytes.", unread=unread)

    async def _drain(self, receive: Receive) -> None:
        """Take what comes and drop it, up to a point: one who is still sending would see a cut, and no answer."""
        left = _DRAINED * self._limits.body
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_seconds):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return

    async def _body(self, receive: Receive) -> bytes:
        """All of the body, if it comes in time and is not too large."""
        body: bytes = b""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limits.body_seconds
        while True:
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise Refused(408, "The body did not come in time.") from None
            body += message.get("body", b"")
            if len(body) > self._limits.body:
                raise self._too_large(unread=message.get("more_body", False))
            if not message.get("more_body", False):
                return body


def _is_of(origin: str, host: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, and then what else comes."""
    read = False

    async def replay() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _bearer(header: str | None) -> str:
    kind, _, token = (header or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def answer(send: Send, status: int, body: dict[str, Any]) -> None:
    """A whole answer as JSON."""
    text = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
