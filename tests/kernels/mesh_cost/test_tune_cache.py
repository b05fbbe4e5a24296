"""Coefficients are kept for as long as table, program and machine are the same, and not a moment longer."""

import json
import os

import pytest

from penstock.kernels.mesh import tune_cache
from penstock.models.curve import Curve
from penstock.models.mesh_cost import Coefficients
from penstock.tables import table
from tests.kernels.mesh_cost.tables import plain, rows


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Measuring that takes no time; the list grows with every call."""
    calls = []

    def calibrate(found, stream_row_bytes, **_):
        calls.append(stream_row_bytes)
        one = Curve.constant(1e-6)
        return Coefficients(
            found.rows, 8.0, 4096.0, float(stream_row_bytes), 9.0, 1.0, Curve.line(4096.0), one, one, one, one
        )

    monkeypatch.setattr(tune_cache, "calibrate", calibrate)
    monkeypatch.setattr(tune_cache, "page_variants", lambda *_: [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return calls


def test_measured_once(measured, tmp_path):
    found = plain(tmp_path / "t")
    first = tune_cache.coefficients(found, 24)
    second = tune_cache.coefficients(found, 24)
    assert (first[1], second[1]) == (False, True)
    assert first[0] == second[0]
    assert measured == [24]
    assert (tmp_path / "t" / tune_cache.NAME).exists()
    # The file is no part of the table.
    assert table(tmp_path / "t", key="id").version == found.version


def test_each_width_of_stream_rows_by_itself(measured, tmp_path):
    found = plain(tmp_path / "t")
    for width in (24, 48, 24, 48):
        assert tune_cache.coefficients(found, width)[0].v_S == width
    assert measured == [24, 48]


def test_fresh_measures_again(measured, tmp_path):
    found = plain(tmp_path / "t")
    tune_cache.coefficients(found, 24)
    tune_cache.coefficients(found, 24, fresh=True)
    assert measured == [24, 24]


def test_another_version_of_the_table(measured, tmp_path):
    import pyarrow.parquet as pq

    tune_cache.coefficients(plain(tmp_path / "t"), 24)
    pq.write_table(rows(1_000), tmp_path / "t" / "more.parquet")
    tune_cache.coefficients(table(tmp_path / "t", key="id"), 24)
    assert measured == [24, 24]


@pytest.mark.parametrize("what", ["machine", "_identity"])
def test_another_machine_or_program(measured, monkeypatch, tmp_path, what):
    found = plain(tmp_path / "t")
    tune_cache.coefficients(found, 24)
    before = getattr(tune_cache, what)
    if what == "machine":
        monkeypatch.setattr(tune_cache, "machine", lambda: "another, 64 cores")
    else:
        monkeypatch.setattr(tune_cache, "_identity", lambda one: {**before(one), "penstock": "99.0"})
    tune_cache.coefficients(found, 24)
    assert measured == [24, 24]


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"penstock_tune": 1}'])
def test_a_damaged_file_is_measured_anew(measured, tmp_path, damage):
    found = plain(tmp_path / "t")
    tune_cache.coefficients(found, 24)
    (tmp_path / "t" / tune_cache.NAME).write_text(damage)
    assert tune_cache.coefficients(found, 24)[1] is False
    assert tune_cache.coefficients(found, 24)[1] is True


def test_damaged_coefficients_are_measured_anew(measured, tmp_path):
    found = plain(tmp_path / "t")
    tune_cache.coefficients(found, 24)
    place = tmp_path / "t" / tune_cache.NAME
    whole = json.loads(place.read_text())
    whole["found"] = dict.fromkeys(whole["found"], "{}")
    place.write_text(json.dumps(whole))
    assert tune_cache.coefficients(found, 24)[1] is False


def test_where_the_table_cannot_be_written_the_user_s_caches_are_used(measured, monkeypatch, tmp_path):
    found = plain(tmp_path / "t")
    beside, elsewhere = tune_cache.places(found)
    monkeypatch.setattr(tune_cache, "places", lambda _: (tmp_path / "file" / "x", elsewhere))
    (tmp_path / "file").write_text("")
    tune_cache.coefficients(found, 24)
    assert elsewhere.exists()
    assert not beside.exists()
    assert tune_cache.coefficients(found, 24)[1] is True


def test_a_single_file_has_its_cache_beside_it(measured, tmp_path):
    plain(tmp_path / "t")
    found = table(tmp_path / "t" / "rows.parquet", key="id")
    tune_cache.coefficients(found, 24)
    assert sorted(os.listdir(tmp_path / "t")) == ["_penstock_tune-rows.parquet.json", "rows.parquet"]


def test_wide_rows_are_not_made_by_the_million(measured, tmp_path):
    """The largest window would take 4 GB with rows of 4 KB, and all memory there is with wider ones."""
    found = plain(tmp_path / "t")
    for wide in (4 << 10, 10 << 30):
        assert tune_cache.coefficients(found, wide)[0].v_S == wide
        assert tune_cache.coefficients(found, wide) == (tune_cache.known(found, wide), True)
    assert max(measured) < 1_000
