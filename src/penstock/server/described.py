"""What `/openapi.json` says beyond names and parameters: the token, and every way in which a call can fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

_MEANS = {
    400: "The call, the text of a query, or a value in it is wrong; `line` and `column` say where in the text.",
    401: "There is no token, or not the right one.",
    403: "Pages of other origins may not call.",
    404: "There is no such query.",
    408: "The body did not come in time.",
    409: "There is a query of this name.",
    410: "These results are no longer kept.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The server does not answer for this host.",
    429: "There are as many queries as may be, or the text is too long.",
    500: "The server failed at this call; its log says why.",
    503: "There are too many connections, or what answers cannot be reached now.",
}
#: How any call can fail; and any that may bring a body.
_ANY = (401, 403, 413, 415, 421, 500, 503)


class Error(BaseModel):
    """What happened, why, and what to do."""

    kind: str
    what: str
    why: str
    do: str
    line: int | None = None
    column: int | None = None


class Failed(BaseModel):
    """The answer to a call that failed."""

    error: Error


def failing(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The ways in which a call can fail, for its description."""
    return {code: {"model": Failed, "description": _MEANS[code]} for code in sorted({*codes, *_ANY})}


def describe(app: FastAPI) -> None:
    """Have the description say what is so: faults of form are 400 here, and every call needs the token."""

    def openapi() -> Mapping[str, Any]:
        if app.openapi_schema is None:
            said = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
            )
            for calls in said["paths"].values():
                for call in calls.values():
                    call["responses"].pop("422", None)
            for unused in ("HTTPValidationError", "ValidationError"):
                said["components"]["schemas"].pop(unused, None)
            said["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            said["security"] = [{"token": []}]
            app.openapi_schema = said
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign,assignment]
