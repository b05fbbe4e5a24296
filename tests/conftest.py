"""Hypothesis profiles for all tests: `ci` (the default) draws the same examples every time, `explore` new ones.

Choose with HYPOTHESIS_PROFILE=explore; repeat a run of it with --hypothesis-seed=N.
"""

from __future__ import annotations

import os

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
