"""What the server allows at the most; all of it can be told on the command line or in a test."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.dialect import LONGEST


@dataclass(frozen=True)
class Limits:
    """Sizes are bytes, times seconds."""

    #: Of a request's body, and of the text of one query.
    body: int = 256 << 10
    text: int = LONGEST
    #: Queries that are registered at the same time.
    queries: int = 10_000
    #: Open connections, those that follow results included.
    connections: int = 1_000
    #: Until the headers of a request are there, and until its body is.
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    #: A client that follows and takes nothing for so long is disconnected.
    stall_seconds: float = 10.0
    #: Rows in one answer, or in one event.
    rows: int = 10_000
    event_rows: int = 500
    #: Results of a group that are kept; the oldest go first.
    kept: int = 4 << 30
    #: Encoded events that are kept for those who follow the same query.
    cached: int = 64 << 20
