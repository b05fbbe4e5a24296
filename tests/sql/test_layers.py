"""What is stored with a flow says which queries it is for."""

from __future__ import annotations

import pyarrow as pa

from penstock.plan.answering import AnsweringPlan
from penstock.plan.base import Plan
from penstock.spark.agreement import terms_of
from penstock.sql.groups import Group
from penstock.sql.parse import parse
from penstock.sql.plans import plan_of
from tests.sql.test_parse import KNOWN


def made(*texts: str, fixed: bool) -> AnsweringPlan:
    group = Group({f"q{n}": parse(text, KNOWN) for n, text in enumerate(texts)})
    inner = plan_of(group, slots=2)
    assert isinstance(inner, Plan)
    answers = {name: lambda name=name: group.answer(name) for name in group.queries}
    return AnsweringPlan(inner, answers, texts="; ".join(texts), fixed=fixed)


def test_a_checkpoint_knows_its_queries_where_state_depends_on_them():
    least = "SELECT MIN(PER) FROM STOCK WHERE RISK < {}"
    one, both = made(least.format(3), fixed=True), made(least.format(3), least.format(4), fixed=True)
    assert one.identity() != both.identity()
    assert one.identity().items() >= one.plan.identity().items()
    tech, bank = (made(f"SELECT PER FROM STOCK WHERE sector = '{name}'", fixed=False) for name in ("TECH", "BANK"))
    assert tech.identity() == bank.identity()
    # A batch that is half done is finished for the queries with which it was begun.
    assert terms_of(tech) != terms_of(bank)


def test_memory_of_the_inner_plan_is_among_the_terms():
    text = "SELECT MIN(PER) FROM STOCK WHERE RISK < 3"
    small, large = (terms_of(made(said, fixed=True)) for said in (text, f"{text} MEMORY 128 MB"))
    assert small["plan.memory"] != large["plan.memory"]


def test_each_query_has_a_channel_and_the_others_stay():
    plan = made("SELECT PER AS a FROM STOCK", "SELECT vol AS b FROM STOCK", fixed=False)
    assert plan.channels["q0"] == pa.schema([("a", pa.float64())])
    assert plan.channels["q1"] == pa.schema([("b", pa.int64())])
    assert "results" not in plan.channels
    assert plan.make(0).channels == plan.channels
