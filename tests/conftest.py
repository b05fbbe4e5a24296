"""Hypothesis profiles for all tests, and which files begin.

Profile `ci` (the default) draws the same examples every time, `explore` new ones. Choose with
HYPOTHESIS_PROFILE=explore; repeat a run of it with --hypothesis-seed=N.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_SLOW_MACHINES = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, print_blob=True, suppress_health_check=_SLOW_MACHINES
)
settings.register_profile(
    "explore", derandomize=False, deadline=None, max_examples=500, print_blob=True, suppress_health_check=_SLOW_MACHINES
)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
settings.load_profile(_PROFILE)


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--hypothesis-seed", default=None)
    now = settings()
    how = "the same examples every time" if now.derandomize else f"seed {seed if seed is not None else 'random'}"
    return f"hypothesis: profile {_PROFILE}, {now.max_examples} examples, {how}"


#: Files that take longest, the longest first: were one of them the last to begin, all processes would wait for it.
LONGEST = (
    "kernels/test_conformance.py",
    "server/test_engine.py",
    "faults/test_kills.py",
    "broker/test_nats.py",
    "spark/test_runtime.py",
    "spark/test_join_table.py",
    "spark/test_join_streams.py",
    "test_examples.py",
    "spark/test_sql.py",
    "spark/test_subscriptions.py",
    "spark/test_standing_queries.py",
    "spark/test_join_kinds.py",
    "spark/views/test_maintenance.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    turns = {here / name: turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(item.path, len(turns)))
