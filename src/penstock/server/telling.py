"""Queries and groups for people and pages: one form for every operator, None where a number has no meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.plan.pipeline.columns import fits, name_of
from penstock.server.group import told_error

if TYPE_CHECKING:
    from penstock.server.group import Group
    from penstock.server.registry import Member

#: Micro-batches that are told with every answer.
_HISTORY = 120
_PER_BATCH = ("batch", "time", "seconds", "rows_read", "rows_in", "rows_out", "rows_waiting", "memory", "rows_shed")


def query_status(member: Member, group: Group | None, state: str, fault: BaseException | None) -> dict[str, Any]:
    """One query and how it is; its response time is its own where its group tells its queries apart."""
    entry, made = member.entry, member.made
    return {
        "name": entry.name,
        "sql": entry.text,
        "operator": made.operator if made is not None else entry.operator,
        "kind": made.kind if made is not None else "unknown",
        "state": state,
        "error": told_error(fault),
        "sink_error": told_error(member.sink_error),
        "group": entry.group,
        "registered_at": entry.registered_at,
        "from_file": entry.from_file,
        "since_batch": entry.since,
        "columns": columns_of(made.schema) if made is not None else [],
        "rows_since_start": None if made is not None and made.is_view else member.rows,
        "response_seconds": group.response() if group is not None else None,
        "response": made.response(group) if made is not None and group is not None else None,
    }


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Names, and types as a pipeline's file writes them where it can."""
    return [{"name": f.name, "type": name_of(f.type) if fits(f) else str(f.type)} for f in schema]


def group_progress(group: Group, queries: list[str]) -> dict[str, Any]:
    """What a group did, and what it holds."""
    said, history = group.progress(), group.history()
    last: dict[str, Any] = said.get("last", {})
    totals: dict[str, float] = said.get("totals", {})
    expected: dict[str, float] = said.get("expected", {})
    plan = group.plan
    budget = last.get("budget", getattr(plan, "memory", None))
    recall = said.get("estimated_recall", last.get("recall_estimate"))
    is_subscription = plan.name == "subscriptions"
    return {
        "id": group.id,
        "operator": group.making.operator,
        "describes": group.making.describe(),
        "sources": list(group.making.sources),
        "queries": queries,
        "state": group.state,
        "error": told_error(group.error),
        "slots": plan.slots,
        "batches": said.get("batches", 0),
        "rows_in": _first(totals, "rows_in"),
        "rows_out": _first(totals, "rows_out"),
        "rows_per_second": said.get("rows_per_second"),
        "rows_waiting": _first(last, "rows_waiting", "held_rows", "table_rows"),
        "rows_set_aside": (_first(totals, "rows_set_aside", "rows_aside") or 0) + totals.get("rows_malformed", 0),
        "rows_late": _first(totals, "rows_late"),
        "rows_shed": _first(totals, "rows_shed"),
        "rows_evicted": _first(totals, "rows_evicted"),
        "recall": recall,
        # What waits in a join of streams is its window, which nobody works off.
        "backlog": {
            "files": group.files_behind(),
            "rows": _first(last, "rows_waiting") if plan.name == "join_table" else None,
        },
        "memory": {"budget_bytes": budget, "held_bytes": last.get("memory")},
        "response_seconds": group.response(),
        "predicted": {name: value for name, value in expected.items() if name != "measured_step_seconds"} or None,
        "measured": {
            "step_seconds": expected.get("measured_step_seconds", last.get("step_seconds")),
            "rows_per_second": said.get("rows_per_second"),
        }
        if last
        else None,
        "messages": _first(totals, "rows_out") if is_subscription else None,
        "cells": None,
        "notes": said.get("notes", []),
        "history": [{name: batch.get(name) for name in _PER_BATCH} for batch in history[-_HISTORY:]],
    }


def _first(numbers: dict[str, Any], *names: str) -> Any:
    return next((numbers[name] for name in names if name in numbers), None)
