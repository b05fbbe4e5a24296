"""When a query takes its next micro-batch: those of Spark's triggers with which a flow gives all its results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.errors import BadOption

_KINDS = ("availableNow", "processingTime")
_WHY_NOT = {
    "once": "It takes a single micro-batch, and what is still to be joined then would wait for the next start.",
    "continuous": "Spark has no state with it.",
    "realTime": "Spark runs no Python with it.",
}


def check_trigger(trigger: Any) -> None:
    """Refuse another kind, before anything is written."""
    said = list(trigger) if isinstance(trigger, Mapping) else [trigger]
    if trigger is None:
        return
    if len(said) != 1 or said[0] not in _KINDS or not isinstance(trigger, Mapping) or not _valued(*trigger.items()):
        raise BadOption(
            f"trigger={trigger!r} is not a trigger that a flow can have.",
            why=next((_WHY_NOT[kind] for kind in said if kind in _WHY_NOT), ""),
            do='Give {"availableNow": True}, which ends when all input is joined, or {"processingTime": "10 seconds"}.',
        )


def _valued(trigger: tuple[str, Any]) -> bool:
    kind, value = trigger
    if kind == "availableNow":
        return value is True
    # Spark says no more than that it cannot read another.
    return isinstance(value, str) and re.fullmatch(r"\s*(interval\s+)?(\d+(\.\d+)?\s*[A-Za-z]+\s*)+", value) is not None
