"""The conformance suite: every kernel is found, and asked the same five questions.

1. Is it equal to its naive twin?
2. Is it equal to recomputing from scratch at every prefix?
3. Is it the same however batches are cut?
4. Is it the same after `restore` at any point?
5. Is memory never above the budget?

To add a kernel to the suite, write `tests/kernels/cases/<family>.py`; it is found there, and a kernel without a case
fails the suite by name::

    from hypothesis import strategies as st
    from penstock.kernels.family import MyKernel
    from penstock.testing.conformance import Case, register, side_of
    from penstock.testing.strategies import streams, table_schema

    SCHEMA = table_schema("integer")  # columns k and v


    def twin(plan, portions):  # slow, obvious, and the judge
        rows = side_of(portions, 0, SCHEMA).to_pylist()
        return {"results": pa.Table.from_pylist([... for row in rows], schema=...)}


    register(
        Case(
            "my kernel",
            MyKernel,
            plans=st.integers(1, 9),
            make=lambda plan: MyKernel(SCHEMA, plan),
            inputs=lambda plan: streams(SCHEMA),
            twin=twin,
            budget=lambda plan: 100_000,
        )
    )

For kernels of your own, outside Penstock, one call asks all questions: `check(case)`. It raises with the smallest
example that Hypothesis finds. How many examples are tried is the Hypothesis profile's `max_examples`.
"""

from __future__ import annotations

from typing import Any

from penstock.testing.case import CASES, Case, register, side_of
from penstock.testing.discovery import discover, load_cases, uncovered
from penstock.testing.questions import (
    QUESTIONS,
    after_restore,
    any_cut,
    equals_twin,
    every_prefix,
    questions_for,
    within_budget,
)

__all__ = [
    "CASES",
    "QUESTIONS",
    "Case",
    "after_restore",
    "any_cut",
    "check",
    "discover",
    "equals_twin",
    "every_prefix",
    "load_cases",
    "questions_for",
    "register",
    "side_of",
    "uncovered",
    "within_budget",
]


def check(case: Case[Any], examples: int | None = None) -> None:
    """Ask all questions that apply to a case; raises where an answer is no."""
    for ask in questions_for(case).values():
        ask(case, examples)
