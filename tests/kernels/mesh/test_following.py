"""A table that changes between steps: every row is joined with one version, and rows may wait for theirs."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UnreadableTable
from penstock.kernels.contract import RESULTS, Batch, Portion
from penstock.kernels.measure import measure
from penstock.kernels.mesh import following
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.following import FollowingJoin, _Lot
from penstock.tables import table
from penstock.tables.versions import Versions
from penstock.testing import Host
from tests.kernels.cases.mesh import heated

STREAM = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Shelf:
    """Versions of a table, each of them kept."""

    def __init__(self, folder, kept=True):
        self.folder, self.kept, self.count = folder, kept, 0

    def put(self, keys, **columns):
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        rows = pa.table({"k": pa.array(keys, pa.int64()), "version": [self.count] * len(keys), **columns})
        pq.write_table(rows, place / "a.parquet", row_group_size=2)

    def newest(self):
        return str(self.count)

    def load(self, version):
        return table(self.folder / version, key="k")


def rows(*keys):
    return pa.table({"k": pa.array(keys, pa.int64()), "n": range(len(keys))}, schema=STREAM)


def hosted(shelf, **options):
    first = shelf.load("1")
    budget = options.pop("budget", 64 << 20)

    def make():
        return FollowingJoin(STREAM, first, on=Equal(("k",)), budget=budget, source=shelf,
                             choose=lambda found: found.pages, **options)  # fmt: skip

    return Host(make)


def step(host, *keys):
    """What a step finds, and its numbers; the next one starts from what was stored."""
    emissions, numbers = host.step(rows(*keys)), dict(host.kernel.metrics())
    host.crash()
    out = [row for emission in emissions if emission.channel == RESULTS for row in emission.rows.to_pylist()]
    return sorted((row["k"], row.get("version")) for row in out), numbers


@pytest.mark.parametrize("kept", [True, False])
def test_every_row_is_joined_with_one_version(tmp_path, kept):
    shelf = Shelf(tmp_path, kept)
    shelf.put([1, 2, 3, 3])
    host = hosted(shelf)
    assert step(host, 1, 3, 9)[0] == [(1, 1), (3, 1), (3, 1)]
    shelf.put([1, 3, 9])
    # Versions that are kept are seen a step later, so that a step that is run again sees the same.
    if kept:
        assert step(host, 1, 9)[0] == [(1, 1)]
    found, numbers = step(host, 1, 9)
    assert found == [(1, 2), (9, 2)]
    assert numbers["versions"] == 1
    shelf.put([1], extra=[1])
    if kept:
        step(host, 1)
    with pytest.raises(UnreadableTable, match="other columns: 'extra'"):
        host.step(rows(1))


def test_hot_rows_of_a_file_that_was_changed_in_its_middle_are_read_anew(tmp_path):
    """What a version is told by, a footer and some samples, may be the same; the file's time is not."""
    size = 200_000
    asked = range(80_000, 80_020)
    for version in (1, 2):
        values = np.zeros(size, np.int64)
        values[asked] = version
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(pa.table({"k": np.arange(size), "version": values}), tmp_path / f"{version}.parquet", **plain)
    place = tmp_path / "table"
    place.mkdir()
    (tmp_path / "1.parquet").rename(place / "a.parquet")
    first = table(place, key="k")
    kernel = FollowingJoin(STREAM, first, on=Equal(("k",)), budget=64 << 20, source=Versions(str(place), ("k",)),
                           choose=lambda found: found.pages, front=0.0)  # fmt: skip
    host = Host(lambda: heated(kernel))

    def results(emissions):
        return [version for each in emissions for version in each.rows["version"].to_pylist()]

    before = results(host.step(rows(*asked)))
    (tmp_path / "2.parquet").rename(place / "a.parquet")
    assert table(place, key="k").version == first.version, "the test is about such files"
    assert [before, results(host.step(rows(*asked)))] == [[1] * 20, [2] * 20]


def test_rows_wait_for_the_version_that_has_their_partner(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.put([1])
    host = hosted(shelf, how="left", patience=3)
    found, numbers = step(host, 1, 7, 8)
    assert found == [(1, 1)]
    assert numbers["rows_parked"] == 2
    shelf.put([1, 7])
    assert step(host, 1)[0] == [(1, 1)]
    assert step(host)[0] == [(7, 2)]  # the new version has one of the two
    found, numbers = step(host)
    assert found == [(8, None)]  # the other has waited for three more steps
    assert numbers["rows_gave_up"] == 1
    assert numbers["rows_parked"] == 0
    # A row that had a partner is never joined again, whatever comes.
    shelf.put([1, 7, 8])
    assert step(host)[0] + step(host)[0] == []


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_what_becomes_of_rows_whose_patience_ends(tmp_path, how):
    shelf = Shelf(tmp_path)
    shelf.put([1])
    host = hosted(shelf, how=how, patience=1)
    step(host, 1, 7)
    found, numbers = step(host)
    assert found == ([(7, None)] if how == "anti" else [])
    assert numbers["rows_gave_up"] == 1


def test_more_rows_than_there_is_room_for_give_up_the_same_ones_in_any_order():
    lots = []
    for order in (range(100), range(99, -1, -1)):
        lot = _Lot(400.0)
        gone = [*(rows for n in order for rows in lot.add(pa.record_batch({"n": [n]}))), *lot.settle()]
        kept = sorted(n for batch in lot.batches for n in batch["n"].to_pylist())
        lots.append(kept)
        gave_up = [n for batch in gone for n in batch["n"].to_pylist()]
        assert sorted(kept + gave_up) == list(range(100))
    assert lots[0] == lots[1]
    assert 30 < len(lots[0]) < 60


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 200)), max_size=12), st.randoms())
def test_rows_of_any_width_give_up_the_same_in_any_order(rows, rng):
    """A small row is not kept because a wide one went before it came."""

    def kept(order):
        lot = _Lot(400.0)
        for n, width in order:
            list(lot.add(pa.record_batch({"n": [n], "pad": pa.array([b"x" * width], pa.binary())})))
        list(lot.settle())
        return sorted((row["n"], len(row["pad"])) for batch in lot.batches for row in batch.to_pylist())

    assert kept(rows) == kept(rng.sample(rows, len(rows)))


def test_a_window_of_rows_that_wait_is_not_there_twice_while_some_are_chosen(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path)
    shelf.put([1])
    schema, budget = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("pad", pa.string())]), 32 << 20
    join = FollowingJoin(
        schema, shelf.load("1"), on=Equal(("k",)), budget=budget, source=shelf, choose=lambda found: found.pages,
        how="left", patience=2,
    )  # fmt: skip
    plain, before, held = following.measure, pa.total_allocated_bytes(), []

    def watched(rows):
        held.append(pa.total_allocated_bytes() - before)
        return plain(rows)

    monkeypatch.setattr(following, "measure", watched)
    columns = [range(4_000), range(100, 4_100), ["x" * 100] * 4_000]
    portions = (
        Portion(0, pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema))
        for _ in range(20)
    )
    given_up = sum(emission.rows.num_rows for emission in join.step(Batch(portions), 0))
    numbers = join.metrics()
    assert given_up == numbers["rows_gave_up"] == 80_000 - numbers["rows_parked"] > 0
    assert numbers["cycles"] == 1, "the window had room for them in one piece"
    assert max(held) <= budget


def test_the_first_step_uses_the_version_it_is_told(tmp_path):
    """So that it parks the same rows when it is run again, although there is a new version by then."""
    shelf = Shelf(tmp_path)
    shelf.put([1])
    host = hosted(shelf, patience=2, first="1")
    shelf.put([1, 9])
    found, numbers = step(host, 1, 9)
    assert (found, numbers["rows_parked"]) == ([(1, 1)], 1)
    assert step(host)[0] == [(9, 2)]


def test_less_memory_holds_fewer_of_those_that_wait(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.put([1])
    host = hosted(shelf, patience=9, how="left", budget=16 << 20)
    parked = [step(host, *range(many, 2 * many))[1]["rows_parked"] for many in (100, 40_000)]
    assert parked == [100, 40_100]
    small = 4 << 20
    host.make = hosted(shelf, patience=9, how="left", budget=small).make
    found, numbers = step(host)
    assert (len(found), numbers["rows_parked"], numbers["rows_gave_up"]) == (40_000, 100, 40_000)
    assert sum(measure(group.rows) for group in host.kernel._groups) <= small / 4


def test_rows_wait_on_when_patience_is_shortened(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.put([1])
    host = hosted(shelf, patience=5, how="left")
    step(host, 2)
    shelf.put([1, 3])
    step(host, 1)
    host.make = hosted(shelf, patience=3, how="left").make
    step(host, 7)  # a new version, and as much patience left for those that waited as for those that come
    found = [row for _ in range(5) for row in step(host, 1)[0]]
    assert sorted(row for row in found if row[0] != 1) == [(2, None), (7, None)]
