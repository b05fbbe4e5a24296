"""The calls over HTTP. Each is a call of the engine; what may call is decided before (`penstock.server.guard`)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from penstock import __version__
from penstock.errors import LimitReached, NameTaken, PenstockError, PlanError, ResultsGone, UnknownQuery
from penstock.server.auth import Token
from penstock.server.described import describe, failing
from penstock.server.engine import Engine
from penstock.server.events import EventStream, Hub
from penstock.server.guard import FAILED, Guard, Refused, told
from penstock.server.limits import Limits
from penstock.server.metrics import metrics
from penstock.server.reading import Offset, as_json

_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (UnknownQuery, 404),
    (NameTaken, 409),
    (ResultsGone, 410),
    (LimitReached, 429),
    (PlanError, 400),
    (PenstockError, 503),
)
_PAGE = Path(str(files("penstock.server") / "page"))
_KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


#: An answer has at most as many rows as the server's limits say, whatever was asked for.
RowLimit = Annotated[int, Query(ge=1, le=1_000_000)]


class NewQuery(BaseModel):
    """A query to be registered."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str
    sql: str


class Asked(BaseModel):
    """A query to be explained."""

    model_config = ConfigDict(extra="forbid", strict=True)
    sql: str


def make_app(engine: Engine, token: Token, hosts: frozenset[str], limits: Limits | None = None) -> Guard:
    """The application with its guard."""
    limits = limits or engine.limits
    app = FastAPI(
        title="Penstock",
        version=__version__,
        summary="Standing queries over streams: register them, follow their results.",
        description="Every call needs the header `Authorization: Bearer <token>`. Bodies are JSON.",
        docs_url=None,
        redoc_url=None,
    )
    hub = Hub(engine, limits)
    app.state.hub = hub
    _errors(app)
    _queries(app, engine, hub, limits)
    _telling(app, engine, hub, limits)
    _page(app)
    describe(app)
    return Guard(app, token, hosts, limits, hub.close)


def _errors(app: FastAPI) -> None:
    @app.exception_handler(PenstockError)
    async def ours(_: Request, error: PenstockError) -> JSONResponse:
        status = next(code for kind, code in _STATUS if isinstance(error, kind))
        return JSONResponse(told(error), status)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(Refused(500, FAILED).body, 500)  # the guard writes the trace to the log

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent is not sent back.
        said = "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5])
        what = f"This call is not understood: {said}."
        return JSONResponse(Refused(400, what, "GET /openapi.json says what each call takes.").body, 400)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        what = {404: "There is nothing here.", 405: "This cannot be done here."}.get(error.status_code, "Refused.")
        return JSONResponse(
            Refused(error.status_code, what, "GET /openapi.json lists all calls.").body,
            error.status_code,
            headers=error.headers,
        )


def _queries(app: FastAPI, engine: Engine, hub: Hub, limits: Limits) -> None:
    @app.get("/queries", responses=failing())
    def queries() -> dict[str, Any]:
        """All registered queries: state, group, columns, results so far, response time."""
        return {"queries": engine.queries(), "limit": limits.queries}

    @app.post("/queries", status_code=201, responses=failing(400, 408, 409, 429))
    def register(query: NewQuery) -> dict[str, Any]:
        """Register a query as SQL text; it answers from the next results on, also after a restart of the server."""
        return engine.register(query.name, query.sql)

    @app.post("/explain", responses=failing(400, 408, 429))
    def explain(asked: Asked) -> dict[str, Any]:
        """What a text would run, with whom it would share and what that costs; registers nothing."""
        return engine.explain(asked.sql)

    @app.get("/queries/{name}", responses=failing(404))
    def status(name: str) -> dict[str, Any]:
        """One query."""
        return engine.status(name)

    @app.delete("/queries/{name}", status_code=204, responses=failing(400, 404))
    def remove(name: str) -> Response:
        """Forget a query and, if it was the last of its group, what the group wrote."""
        engine.remove(name)
        return Response(status_code=204)

    @app.post("/queries/{name}/pause", responses=failing(404, 408))
    def pause(name: str) -> dict[str, Any]:
        """Show no further results until it is resumed; none is lost."""
        return engine.pause(name)

    @app.post("/queries/{name}/resume", responses=failing(404, 408))
    def resume(name: str) -> dict[str, Any]:
        """Go on where it was paused."""
        return engine.resume(name)

    @app.get("/queries/{name}/results", responses=failing(400, 404, 410))
    def results(
        name: str,
        after: Annotated[str | None, Query(max_length=80, description="the `next` of an earlier answer")] = None,
        limit: RowLimit = 1000,
    ) -> dict[str, Any]:
        """Results that are there now, from an offset on."""
        owner = engine.owner(name)
        page = engine.results(name, after=None if after is None else Offset.of(after, owner), limit=limit)
        return {"rows": as_json(page.rows), "next": page.next.told(owner), "more": page.more}

    @app.get("/queries/{name}/events", response_class=EventStream, status_code=200, responses=failing(400, 404, 410))
    def events(
        name: str,
        after: Annotated[str | None, Query(max_length=80)] = None,
        last_event_id: Annotated[str | None, Header(max_length=80)] = None,
    ) -> Response:
        """Follow results as server-sent events `rows`; each id is the offset to come back with."""
        owner = engine.owner(name)
        said = last_event_id or after
        begin = None if said is None else Offset.of(said, owner)
        return EventStream(hub, lambda: hub.rows(name, owner, begin), limits.stall_seconds)


def _telling(app: FastAPI, engine: Engine, hub: Hub, limits: Limits) -> None:
    @app.get("/views/{name}", responses=failing(400, 404))
    def view(name: str, max_staleness: Annotated[str | None, Query(max_length=40)] = None) -> dict[str, Any]:
        """Read a view: fresh, or as old as `max_staleness` ("5 seconds") allows."""
        return engine.read_view(name, max_staleness)

    @app.get("/catalogue", responses=failing())
    def catalogue() -> dict[str, Any]:
        """The streams and tables that queries may name."""
        return engine.catalogue()

    @app.get("/progress", responses=failing())
    def progress() -> dict[str, Any]:
        """Every group: rows, rates, memory against budget, shed and recall, predicted against measured."""
        return {**engine.progress(), "following": hub.following, "version": __version__}

    @app.get("/progress/events", response_class=EventStream, status_code=200, responses=failing(400))
    def progress_events(every: Annotated[float, Query(ge=0.2, le=60)] = 1.0) -> Response:
        """What `/progress` says, as server-sent events `progress`."""
        return EventStream(hub, lambda: hub.progress(every), limits.stall_seconds)

    @app.get("/metrics", response_class=PlainTextResponse, responses=failing())
    def prometheus() -> Response:
        """For Prometheus."""
        return Response(metrics(engine, lambda: hub.following), media_type="text/plain; version=0.0.4")


def _page(app: FastAPI) -> None:
    def file(name: str) -> Response:
        # Resolved, then required to lie below the page's own folder.
        try:
            found = (_PAGE / name).resolve()
            if _PAGE.resolve() not in found.parents or found.suffix not in _KINDS or not found.is_file():
                raise HTTPException(404)
        except (OSError, ValueError):  # no name that a file could have
            raise HTTPException(404) from None
        return FileResponse(found, media_type=_KINDS[found.suffix])

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        if not (_PAGE / "index.html").is_file():
            return PlainTextResponse("Penstock. GET /openapi.json lists all calls.\n")
        return file("index.html")

    @app.get("/page/{name:path}", include_in_schema=False)
    def asset(name: str) -> Response:
        return file(name)
