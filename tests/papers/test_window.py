"""The figures of window joins, reduced: they run, draw, and say what holds at any size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from papers.window import trends, zipf
from papers.window.simulate import LIFE, PROB, exact, simulate
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.window.life import Life
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.side import ENTRY
from penstock.kernels.window.windowjoin import WindowJoin
from penstock.kernels.window.windows import TimeWindow
from penstock.quality.optoffline import opt_offline


def quiet(text):
    pass


@pytest.mark.parametrize(("number", "policy"), [(PROB, Prob()), (LIFE, Life())])
def test_the_simulation_is_the_kernel(number, policy):
    rng = np.random.default_rng(2)
    chances = rng.permutation(np.arange(1, 21) / 210.0)
    left, right = rng.integers(0, 20, (2, 250))
    # The kernel's window has both ends, the papers' ends before it.
    got = simulate(left, right, window=81, memory=40, policy=number, chances=(chances, chances), fixed=False).results
    sides = [pa.schema([("k", pa.int64()), (name, pa.timestamp("us"))]) for name in ("lt", "rt")]
    given = (lambda keys: chances[keys.to_numpy()],) * 2
    kernel = WindowJoin(
        Shape(*sides, (("k", "k"),)),
        TimeWindow(80, 80),
        policy,
        budget=1 << 20,
        times=("lt", "rt"),
        probabilities=given,
    )
    kernel._room = 40 * (16.25 + ENTRY) / (7 / 8) + 1e-6
    found = 0
    for t in range(250):
        moment = pa.array([t]).cast(pa.timestamp("us"))
        step = [
            Portion(side, pa.RecordBatch.from_arrays([pa.array([int(keys[t])]), moment], schema=sides[side]))
            for side, keys in enumerate((left, right))
        ]
        found += sum(e.rows.num_rows for e in kernel.step(Batch(step, None), 0) if e.channel == "results")
    assert found == got


def test_no_policy_is_above_the_optimum():
    left, right, chances = zipf.streams(600, 30, 1.0)
    for fixed in (True, False):
        best = opt_offline(left, right, window=60, memory=20, variable=not fixed).results
        for policy in (PROB, LIFE):
            got = simulate(left, right, window=60, memory=20, policy=policy, chances=chances, fixed=fixed).results
            assert got <= best <= exact(left, right, 60)


def test_heeb_beats_the_others_on_a_trend(tmp_path):
    setting = trends.SETTINGS[0]
    left, right = setting.make(800, 1)
    found = trends.online(setting, left, right, 10, 40, 1)
    best = opt_offline(left, right, window=setting.window, memory=10, variable=True, warm_up=40).results
    assert max(found["RAND"], found["PROB"], found["LIFE"]) < found["HEEB"] <= best
    lines = trends.run_allocation(True, quiet)
    assert all(claim.holds for claim in trends.claims_allocation(lines))
    trends.FIGURE15.plot(lines, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000
