"""HEEB: the row with the lowest estimated expected benefit goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.errors import BadOption
from penstock.kernels.window.policy import F64, I64, Arrivals, Candidates, Policy
from penstock.models.fitting import Fit
from penstock.models.stream_models import Now, StreamModel, alpha_for

Fade = Literal["exp", "fixed"]
#: The mean life, in rows of the other side, before one was observed; and how much a new observation weighs.
_FIRST_LIFE, _WEIGHT = 20.0, 0.2
_LARGEST = 1e12


class Heeb(Policy):
    """Evict the row with the lowest `H = Σ_d Pr{the other side's d-th next row is a partner} · L(d)`.

    The probabilities come from a model of the other stream, given or fitted while it flows. Where none explains it, or
    keys are no numbers, the probability of the key is taken instead: PROB. `L` is how likely the row is to be
    still there: `e^{-d/α}`, with α from the mean life of rows that were evicted, or 1 for a fixed number of rows ahead.

    Guarantees
        Never contradicts a dominance (003, Theorem 10): `test_heeb_never_contradicts_a_dominance`.
    State and cost
        Of each side some twenty numbers, and of an AR(1) process a surface. A row costs some hundred numbers at the
        most, whatever α is: `test_rows_that_live_long_cost_no_more`.
    Source
        003 §3.4.3 and §3.4.4. The other two L, inf and inv, are for caches: `penstock.kernels.window.caching`.
    """

    name = "heeb"

    def __init__(
        self,
        left: StreamModel | None = None,
        right: StreamModel | None = None,
        *,
        alpha: float | None = None,
        fade: Fade = "exp",
        ahead: int = 100,
        fit: bool = True,
    ) -> None:
        for side, model in (("left", left), ("right", right)):
            if model is not None and not isinstance(model, StreamModel):
                raise BadOption(
                    f"{side}={model!r} is not a model of a stream.",
                    do="Give one of penstock.models.stream_models, or leave it out to have one fitted.",
                )
        given: object = alpha
        if given is not None and not (isinstance(given, int | float) and given > 0):
            raise BadOption(
                f"alpha={alpha!r} is not a number above 0.", do="Give one, or leave it out to have it observed."
            )
        if fade not in ("exp", "fixed") or ahead < 1:
            raise BadOption(f"fade={fade!r}, ahead={ahead} is none.", do='Give "exp", or "fixed" with ahead=100 rows.')
        self._given = (left, right)
        self._alpha, self._fade, self._ahead, self._fit = alpha, fade, ahead, fit
        self._fits = (Fit(), Fit())
        self._models: list[StreamModel | None] = [left, right]
        self._life = _FIRST_LIFE
        # Of each side: the first and the last time, to know how long a row takes to come.
        self._span: list[list[int] | None] = [None, None]

    @property
    def single_slot(self) -> bool:
        """Models are of whole streams."""
        return True

    @property
    def alpha(self) -> float:
        """The α in force."""
        return self._alpha if self._alpha is not None else alpha_for(self._life)

    def observe(self, rows: Arrivals) -> None:
        """Learn from what came."""
        first = int(rows.times.min())
        known = self._span[rows.side]
        self._span[rows.side] = [min(first, known[0]) if known else first, int(rows.times.max())]
        values = _numbers(rows.key_values())
        if values is None:
            return
        fit = self._fits[rows.side]
        fit.add(values)
        if self._given[rows.side] is None and self._fit:
            self._models[rows.side] = fit.model()

    def departed(self, side: int, ages: I64) -> None:
        """How long rows lived, in rows of the other side."""
        life = float(np.maximum(ages, 0).mean()) * self._rate(1 - side)
        self._life = (1 - _WEIGHT) * self._life + _WEIGHT * max(life, 1.0)

    def _rate(self, side: int) -> float:
        """Rows of a side for each unit of time."""
        span = self._span[side]
        return 1.0 if span is None else max(self._fits[side].now.step, 1) / max(span[1] - span[0], 1)

    def scores(self, rows: Candidates, salt: int) -> F64:
        """The benefit of each row."""
        other = 1 - rows.side
        model, now = self._models[other], self._fits[other].now
        values = _numbers(rows.keys) if model is not None else None
        if model is None or values is None:
            return rows.partner / (math.exp(1.0 / self.alpha) - 1.0)
        life = np.maximum(rows.life, 0) * self._rate(other)
        if self._fade == "fixed":
            chances = model.chances(values, Now(now.step, now.last), self._ahead)
            return np.cumsum(chances, axis=1)[np.arange(len(values)), np.clip(life, 1, self._ahead).astype(int) - 1]
        return model.benefit_within(values, now, self.alpha, life)

    def model(self, side: int) -> int:
        """Its number."""
        model = self._models[side]
        return 0 if model is None else model.number

    def head(self) -> Mapping[str, Any]:
        """What it has learned."""
        return {"life": self._life, "span": self._span, "fits": [fit.head() for fit in self._fits]}

    def restore(self, head: Mapping[str, Any]) -> None:
        """Know it again."""
        self._life, self._span = head["life"], [None if one is None else list(one) for one in head["span"]]
        for side, said in enumerate(head["fits"]):
            self._fits[side].restore(said)
            if self._given[side] is None and self._fit:
                self._models[side] = self._fits[side].model()

    def describe(self) -> str:
        """With its models."""
        known = [type(model).__name__ if model else "fitted" for model in self._given]
        return f"HEEB (models: left {known[0]}, right {known[1]}; PROB where none fits)"


def _numbers(keys: pa.Array) -> F64 | None:
    """Keys as numbers, where they are; no model is of numbers so large that squares of them lose their digits."""
    if pa.types.is_integer(keys.type) or pa.types.is_floating(keys.type):
        values = keys.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.clip(values, -_LARGEST, _LARGEST)
    return None
