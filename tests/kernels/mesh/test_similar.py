"""Texts that are alike, against sets of pieces made by hand."""

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadOption, PlanError
from penstock.kernels.contract import RESULTS, SET_ASIDE
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.kernels.mesh.similar import LONGEST, Similar, grams
from penstock.plan.conditions import similar
from penstock.tables import table
from penstock.testing import Host

TEXTS = st.lists(st.none() | st.text("abÄ ", max_size=6), max_size=12)
STREAM = pa.schema([("n", pa.int64()), ("text", pa.string())])


def pieces(text):
    data = f"  {text.lower()} ".encode()
    return {data[i : i + 3] for i in range(len(data) - 2)}


def alike(one, other):
    ours, theirs = pieces(one), pieces(other)
    return len(ours & theirs) / len(ours | theirs)


def joined(folder, texts, names, how="inner", page=4, **options):
    pq.write_table(pa.table({"name": pa.array(names, pa.string())}), folder / "t.parquet", row_group_size=page)
    found = table(folder, key="name")
    condition = Similar("text", **options)
    stream = pa.table({"n": range(len(texts)), "text": pa.array(texts, pa.string())}, schema=STREAM)
    host = Host(lambda: MeshJoin(STREAM, found, on=condition, how=how, budget=64 << 20))
    for at in range(0, len(texts), 5):
        host.step(stream.slice(at, 5))
    host.drain()
    return host.results()


@given(TEXTS, TEXTS, st.sampled_from([0.2, 0.5, 1.0]), st.sampled_from(["inner", "anti"]))
def test_similar_texts_are_those_that_share_enough_pieces(tmp_path_factory, texts, names, at_least, how):
    got = joined(tmp_path_factory.mktemp("t"), texts, names, how, at_least=at_least, candidates=100)[RESULTS]
    want = [
        (n, name)
        for n, text in enumerate(texts)
        for name in names
        if text is not None and name is not None and alike(text, name) >= at_least
    ]
    if how == "inner":
        assert sorted(zip(got["n"].to_pylist(), got["name"].to_pylist(), strict=True)) == sorted(want)
    else:
        assert sorted(got["n"].to_pylist()) == sorted(set(range(len(texts))) - {n for n, _ in want})


@given(TEXTS)
def test_pieces_are_found_whatever_a_column_was_cut_from(texts):
    column = pa.array(["before", *texts], pa.string()).slice(1)
    found, rows = grams(column)
    for n, text in enumerate(texts):
        mine = {int(p).to_bytes(3, "big") for p, row in zip(found, rows, strict=True) if row == n}
        assert mine == (set() if text is None else pieces(text))


def test_rows_with_too_many_candidates_or_too_long_are_set_aside(tmp_path):
    names = [f"common {n}" for n in range(20)] + ["rare"]
    texts = ["common 7", "rare", "x" * (LONGEST + 1)]
    got = joined(tmp_path, texts, names, page=50, at_least=0.9, candidates=10)
    assert got[RESULTS]["text"].to_pylist() == ["rare"]
    reasons = sorted(got[SET_ASIDE]["reason"].to_pylist())
    assert len(reasons) == 2
    assert "more than 10 rows" in reasons[0]
    assert "too long" in reasons[1]


def test_a_limit_is_required(tmp_path):
    pq.write_table(pa.table({"name": ["a"], "k": [1]}), tmp_path / "t.parquet")
    found, by_number = table(tmp_path, key="name"), table(tmp_path, key="k")
    (fault,) = similar("text", at_least=0.5).faults(STREAM, found)
    assert isinstance(fault, BadOption)
    assert "no limit on candidates" in str(fault)
    assert "not a share" in str(similar("text", at_least=1.5, candidates=9).faults(STREAM, found)[0])
    assert "not a text" in str(similar("n", at_least=0.5, candidates=9).faults(STREAM, found)[0])
    (fault,) = similar("text", at_least=0.5, candidates=9).faults(STREAM, by_number)
    assert isinstance(fault, PlanError)
    assert not similar("text", at_least=0.5, candidates=9).faults(STREAM, found)
