"""Data made by seed: the same every time, and never half of it."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import data

TABLE = data.WideTable(rows=1_000, columns=3, files=3, group_rows=100)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_BENCH_DATA", str(tmp_path / "data"))


def silent(text):
    pass


def test_table_has_every_key_once_in_random_order():
    place = TABLE.get(silent)
    table = pq.read_table(place, columns=[TABLE.key, *TABLE.values])
    keys = table.column(TABLE.key).to_numpy()
    assert sorted(keys) == list(range(1_000))
    assert not np.all(keys[1:] > keys[:-1])
    assert len(list(place.glob("*.parquet"))) == 3


def test_made_once_and_the_same_again(tmp_path, monkeypatch):
    said = []
    place = TABLE.get(said.append)
    assert TABLE.get(said.append) == place
    assert len(said) == 1
    monkeypatch.setenv("PENSTOCK_BENCH_DATA", str(tmp_path / "elsewhere"))
    assert pq.read_table(TABLE.get(silent)).equals(pq.read_table(place))


def test_other_settings_are_other_data():
    assert TABLE.get(silent) != data.WideTable(rows=1_000, columns=3, files=3, group_rows=100, seed=2).get(silent)


def test_cut_data_is_made_again():
    place = TABLE.get(silent)
    whole = pq.read_table(place)
    victim = next(place.glob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-10])
    assert not data.is_complete(place)
    assert pq.read_table(TABLE.get(silent)).equals(whole)
    victim.unlink()
    assert not data.is_complete(place)


def test_what_failed_halfway_is_not_taken_for_complete():
    def fail(place):
        (place / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        data.cached("failing", {}, fail, silent)
    made = data.cached("failing", {}, lambda place: (place / "whole").touch(), silent)
    assert [path.name for path in made.iterdir() if not path.name.startswith("_")] == ["whole"]


def test_forgotten_data_is_made_again():
    count = []
    for _ in range(2):
        data.cached("some", {"n": 1}, lambda place: count.append(1), silent)
    data.forget("some", {"n": 1})
    data.cached("some", {"n": 1}, lambda place: count.append(1), silent)
    assert len(count) == 2
