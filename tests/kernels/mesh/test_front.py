"""The front cache: what is worth a place in it, and that it never gives other results than the join without it."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.kernels.contract import RESULTS, Portion
from penstock.kernels.mesh.budget import LEAST_WINDOW, least_budget
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.following import FollowingJoin
from penstock.kernels.mesh.front import GAIN, SHARE
from penstock.kernels.mesh.front_cache import FrontCache
from penstock.kernels.mesh.hot import best, sample
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.tables import table
from penstock.testing import CRASH, Host, assert_same_rows, play, uniform_keys, zipf_keys
from tests.kernels.cases.mesh import heated

STREAM = pa.schema([("id", pa.int64()), ("k", pa.int64())])
KEYS, ROWS = 5_000, 12_000
#: With the least room there is for some 4,000 rows of the stream.
WINDOW = 32 << 10


def stored(folder, copies=1, shift=0):
    """Every key `copies` times, in pages far apart."""
    folder.mkdir(exist_ok=True)
    keys = np.tile(np.arange(KEYS), copies)
    rows = pa.table({"k": keys, "n": np.arange(len(keys)) + shift})
    pq.write_table(rows, folder / "a.parquet", row_group_size=1_000)
    return table(folder, key="k")


def numbered(keys, first=0):
    return pa.table({"id": np.arange(first, first + len(keys)), "k": keys})


def join(stream, path):
    return duckdb.sql(f"SELECT s.*, r.n FROM stream s JOIN '{path}/*.parquet' r USING (k)").to_arrow_table()


def host_of(over, front=GAIN):
    budget = least_budget(over.pages) + WINDOW
    return Host(lambda: MeshJoin(STREAM, over, on=["k"], budget=budget, front=front), budget=budget)


def pages_of(host, steps):
    """Pages read in each step."""
    read = []
    for step in steps:
        host.step(step)
        read.append(host.kernel.metrics()["pages_read"])
    return read


def test_skewed_keys_are_answered_from_the_cache_and_save_passes(tmp_path):
    over = stored(tmp_path / "t", copies=2)
    steps = [numbered(zipf_keys(ROWS, KEYS, 1.0, seed=n), ROWS * n) for n in range(3)]
    with_it, without = host_of(over), host_of(over, front=None)
    saved, plain = pages_of(with_it, steps), pages_of(without, steps)
    numbers = with_it.kernel.metrics()
    assert saved[0] == plain[0], "it has to learn first"
    assert saved[-1] < 0.75 * plain[-1]
    assert numbers["rows_answered"] > ROWS / 4
    assert 0 < numbers["memory_front"] <= (LEAST_WINDOW + WINDOW) / SHARE
    assert with_it.peak <= with_it.budget
    assert_same_rows(with_it.results()[RESULTS], join(pa.concat_tables(steps), over.path))


def test_the_key_may_stand_behind_other_columns(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    rows = pa.table({"n": np.arange(KEYS) + 7, "k": np.arange(KEYS)})
    pq.write_table(rows, folder / "a.parquet", row_group_size=1_000)
    host = host_of(table(folder, key="k"))
    steps = [numbered(zipf_keys(ROWS, KEYS, 1.0, seed=n), ROWS * n) for n in range(2)]
    got = host.run(steps)[RESULTS]
    assert host.kernel.metrics()["rows_answered"] > 0
    assert_same_rows(got, join(pa.concat_tables(steps), folder))


def test_a_cache_for_which_a_smaller_budget_has_no_room_is_let_go(tmp_path):
    over = stored(tmp_path / "t", copies=2)
    rich, poor = (
        Host(lambda budget=budget: heated(MeshJoin(STREAM, over, on=["k"], budget=budget, front=0.0)), budget=budget)
        for budget in (least_budget(over.pages) + (1 << 20), least_budget(over.pages))
    )
    rich.run([numbered(np.arange(10))])
    assert rich.kernel.metrics()["memory_front"] > LEAST_WINDOW
    poor.store = rich.store
    assert poor.kernel.metrics()["memory_front"] == 0
    assert poor.run([numbered(np.arange(10))])[RESULTS].num_rows == 20


def test_uniform_keys_are_not_cached(tmp_path):
    host = host_of(stored(tmp_path / "t"))
    for n in range(3):
        host.step(numbered(uniform_keys(ROWS, KEYS, seed=n)))
        assert host.kernel.metrics()["memory_front"] == 0
    assert not host.store.chunks


def test_a_cache_that_saves_less_than_it_takes_is_let_go(tmp_path):
    host = host_of(stored(tmp_path / "t"))
    host.step(numbered(zipf_keys(ROWS, KEYS, 1.0, seed=1)))
    assert host.kernel.metrics()["memory_front"] > 0
    host.step(numbered(uniform_keys(1_500, KEYS, seed=1)))
    assert host.kernel.metrics()["memory_front"] == 0


def test_hot_keys_that_move_are_followed(tmp_path):
    host = host_of(stored(tmp_path / "t"))
    for scramble in (1, 1, 2, 2):
        host.step(numbered(zipf_keys(ROWS, KEYS, 1.0, seed=3, scramble=scramble)))
    assert host.kernel.metrics()["rows_answered"] > ROWS / 4


def test_a_step_that_fits_the_window_fills_no_cache(tmp_path):
    host = host_of(stored(tmp_path / "t"))
    host.step(numbered(zipf_keys(3_000, KEYS, 1.0, seed=1)))
    assert host.kernel.metrics()["memory_front"] == 0


class _Forgetful(FrontCache):
    """A planted fault: of the rows of a hash it keeps the first."""

    def pairs(self, numbers):
        places, rows = super().pairs(numbers)
        first = np.unique(places, return_index=True)[1]
        return places[first], rows[first]


def test_a_key_with_one_of_its_two_rows_would_be_noticed(tmp_path):
    over = stored(tmp_path / "t", copies=2)
    host = host_of(over)
    steps = [numbered(zipf_keys(ROWS, KEYS, 1.0, seed=n)) for n in range(2)]
    host.step(steps[0])
    host.kernel._front.cache.__class__ = _Forgetful
    host.step(steps[1])
    with pytest.raises(AssertionError):
        assert_same_rows(host.results()[RESULTS], join(pa.concat_tables(steps), over.path))


class _Versions:
    """A table that is replaced between two steps."""

    kept = True

    def __init__(self, *tables):
        self.tables, self.at = tables, 0

    def newest(self):
        return str(self.at)

    def load(self, version):
        return self.tables[int(version)]


@pytest.mark.parametrize("fault", [False, True])
def test_a_cache_is_of_one_version(tmp_path, fault):
    source = _Versions(stored(tmp_path / "a"), stored(tmp_path / "b", shift=1_000_000))
    budget = least_budget(source.tables[0].pages) + WINDOW

    def make():
        pages = lambda over: over.pages  # noqa: E731
        return FollowingJoin(
            STREAM, source.tables[0], on=Equal(("k",)), budget=budget, source=source, choose=pages, front=GAIN
        )

    host = Host(make, budget=budget)
    steps = [numbered(zipf_keys(ROWS, KEYS, 1.0, seed=n)) for n in range(3)]
    host.step(steps[0])
    host.crash()
    host.step(steps[1])
    assert host.kernel.metrics()["rows_answered"] > ROWS / 4, "also after a restore"
    source.at = 1
    host.step(steps[1].slice(0, 10))  # the version of a step was stored by the one before
    if fault:
        host.kernel._front.begin = lambda version, room: None
        host.kernel._front.clear = lambda: None
    before = host.rows[RESULTS]
    host.step(steps[2])
    after = pa.concat_tables([host.results()[RESULTS].slice(before)])
    if fault:
        with pytest.raises(AssertionError):
            assert_same_rows(after, join(steps[2], tmp_path / "b"))
        return
    assert_same_rows(after, join(steps[2], tmp_path / "b"))


@pytest.mark.parametrize("front", [GAIN, 0.0])
def test_a_script_of_crashes_changes_nothing(tmp_path, front):
    over = stored(tmp_path / "t")
    rng = np.random.default_rng(4)
    lines = []
    for n in range(5):
        step = numbered(zipf_keys(int(rng.choice([300, ROWS])), KEYS, 1.0, seed=n), ROWS * n)
        lines += [[Portion(0, batch) for batch in step.to_batches()], CRASH]
    got = play(host_of(over, front), lines)[RESULTS]
    whole = pa.concat_tables([pa.Table.from_batches([rows for _, rows in line]) for line in lines[::2]])
    assert_same_rows(got, join(whole, over.path))


def test_the_choice_is_the_best_of_all_beginnings_of_the_list():
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 12))
        saves, takes = rng.integers(1, 60, count).astype(float), rng.integers(1, 9, count).astype(float)
        pick = best(np.arange(count, dtype=np.uint64), saves / takes, saves, takes, 500.0, 100.0, 25.0)
        order = np.argsort(-saves / takes, kind="stable")
        tried = [
            max((500 - saves[order[:n]].sum()) / (100 - takes[order[:n]].sum()), 1)
            for n in range(count + 1)
            if takes[order[:n]].sum() <= 25
        ]
        assert pick.passes == pytest.approx(min(tried))


def test_keys_that_come_in_turns_are_seen_in_both_halves():
    found = sample(np.tile(np.arange(20, dtype=np.uint64), 100))
    assert len(found.hashes) == 20
    assert (found.again > 20).all()
