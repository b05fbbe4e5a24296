"""Any text gives a plan, or an error of ours that shows the place: never a crash."""

from __future__ import annotations

import pytest

from penstock.errors import BadSQL, PenstockError
from penstock.sql.catalogue import Catalogue
from penstock.sql.groups import Group, explain, group
from penstock.sql.parse import parse
from penstock.sql.plans import plan_of
from tests.sql.generator import VALUES, Queries, catalogue, spoilt


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Catalogue:
    return catalogue(tmp_path_factory.mktemp("tables"))


def test_a_thousand_queries_have_plans(known):
    queries = {}
    for seed in range(1000):
        text = Queries(seed).text()
        query = parse(text, known, VALUES)
        plan_of(Group({"query": query}), slots=2)
        queries[f"q{seed}"] = query
    groups = group(queries)
    assert sum(len(one.queries) for one in groups) == len(queries)
    assert {one.shape.kind for one in groups} == {
        "selection", "table join", "window join", "band join", "select-join", "range aggregate", "view",
    }  # fmt: skip
    # One plan for all of a group: what it takes to answer them together.
    for one in groups:
        plan_of(one, slots=2)
    some = dict(list(queries.items())[:40])
    assert all("plan" in explain(query, some, slots=2) for query in some.values())


def outcomes(known: Catalogue, seeds: range) -> tuple[int, int]:
    planned = told = 0
    for seed in seeds:
        text = spoilt(Queries(seed).text(), seed)
        try:
            query = parse(text, known, VALUES)
            plan_of(Group({"query": query}), slots=2)
            planned += 1
        except PenstockError as fault:
            told += 1
            check_place(fault, text)
    return planned, told


def check_place(fault: PenstockError, text: str) -> None:
    if isinstance(fault, BadSQL):
        assert fault.text == text
        assert 0 <= fault.start <= len(text)
        assert fault.line == text.count("\n", 0, fault.start) + 1
        assert "^" in str(fault)


def test_spoilt_texts_give_a_plan_or_an_error_of_ours(known):
    planned, told = outcomes(known, range(1500))
    assert planned > 40
    assert told > 750


@pytest.mark.slow
def test_ten_thousand_spoilt_texts(known):
    planned, told = outcomes(known, range(10_000, 20_000))
    assert planned + told == 10_000


def test_what_no_text_should_do_to_a_reader(known):
    """Long, deep, binary: refused, quickly."""
    for text in (
        "SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM a",
        "SELECT " + "- " * 5000 + "1 FROM a",
        "SELECT a.i FROM a WHERE " + "NOT " * 4000 + "TRUE",
        "SELECT a.i FROM a WHERE " + " OR ".join(["a.i = 1"] * 1500),
        "SELECT a.i FROM a WHERE " + " AND ".join(["a.i = 1"] * 1500),
        "SELECT " + "CASE WHEN TRUE THEN " * 500 + "1" + " END" * 500 + " FROM a",
        "x" * 1_000_000,
        "\x00" * 100,
        "",
        ";;;",
        "‘",
    ):
        with pytest.raises(BadSQL):
            parse(text, known)
