"""What a case may say about its kernel beyond the usual."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from penstock.kernels.contract import RESULTS, Portion
from penstock.kernels.passthrough import PassThrough
from penstock.testing.conformance import Case, any_cut, equals_twin, questions_for, side_of, within_budget
from penstock.testing.questions import Scenario, _bulk
from penstock.testing.strategies import streams, table_schema

SCHEMA = table_schema("integer")


def twin(plan, portions):
    return {RESULTS: pa.concat_tables([side_of(portions, side, SCHEMA) for side in (0, 1)])}


CASE = Case(
    "two sides",
    PassThrough,
    plans=st.just(0),
    make=lambda keep: PassThrough(SCHEMA, keep),
    inputs=lambda keep: streams(SCHEMA, SCHEMA, max_rows=5),
    twin=twin,
)


def test_two_sides():
    equals_twin(CASE, examples=20)
    within_budget(CASE, examples=5)


def test_what_is_defined_by_the_cut_is_not_asked_about_it():
    assert any_cut in questions_for(CASE).values()
    assert any_cut not in questions_for(dataclasses.replace(CASE, cut_free=False)).values()


def test_ordered_results_are_compared_in_order():
    with pytest.raises(AssertionError, match="come in another order"):
        equals_twin(dataclasses.replace(CASE, ordered=True))


def test_close_enough_is_for_the_case_to_say():
    def lossy(plan, portions):
        return {}

    def agree(plan, got, want):
        assert want[RESULTS].num_rows <= got[RESULTS].num_rows

    equals_twin(dataclasses.replace(CASE, twin=lossy, agree=agree), examples=10)
    with pytest.raises(AssertionError, match="unexpected"):
        equals_twin(dataclasses.replace(CASE, twin=lossy), examples=10)


def test_a_twin_with_a_channel_too_many():
    with pytest.raises(AssertionError, match=r"channels that the kernel does not: \['late'\]"):
        equals_twin(dataclasses.replace(CASE, twin=lambda plan, portions: {"late": pa.table({})}), examples=1)


def test_bulk_is_many_rows_of_the_same_kinds_in_small_portions():
    def rows(*values):
        return pa.record_batch({"x": pa.array(values, pa.int64())})

    portions = [Portion(0, rows(1, 2, 3)), Portion(1, rows(4)), Portion(0, rows())]
    bulk = [p for batch in _bulk(dataclasses.replace(CASE, bulk_rows=800, bulk_portion=100), portions) for p in batch]
    assert [(side, piece.num_rows) for side, piece in bulk] == [(0, 150), (1, 50)] * 4
    left = pa.Table.from_batches([piece for side, piece in bulk if side == 0])["x"].to_pylist()
    assert left[:200] == [1 + i % 3 for i in range(200)]


def test_a_scenario_shows_its_rows():
    text = repr(Scenario(5, [[Portion(1, pa.record_batch({"x": [7]}))], []]))
    assert text == "plan=5, batches of (side, rows)=[[(1, {'x': [7]})], []]"
