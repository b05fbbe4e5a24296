"""Which queries share a flow, and that this follows from each of them alone."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadOption, BadQuery
from penstock.kernels.contract import Portion
from penstock.sql.answers import Answer, answer_of
from penstock.sql.catalogue import Catalogue, Stream
from penstock.sql.groups import Group, explain, group
from penstock.sql.parse import Query, parse
from penstock.sql.plans import inputs_of, plan_of, reads_again
from penstock.sql.run import sql
from penstock.sql.standing import Started
from penstock.testing.event_time import EventTime
from penstock.testing.host import Host
from tests.sql.test_parse import KNOWN

TEXTS = {
    "minute": "SELECT t.Value FROM Temperature t, Humidity h WHERE t.LocationId = h.LocationId WINDOW 1 MINUTE",
    "hour": "SELECT h.Value FROM Humidity h, Temperature t WHERE h.LocationId = t.LocationId WINDOW 1 HOUR",
    "rows": "SELECT t.Value FROM Temperature t, Humidity h WHERE t.LocationId = h.LocationId WINDOW 9 ROWS",
    "shed": "SELECT t.Value FROM Temperature t, Humidity h WHERE t.LocationId = h.LocationId WINDOW 1 HOUR SHED PROB",
    "near": "SELECT a, c FROM R, S WHERE S.b - R.b BETWEEN 0 AND 2 WINDOW 1 HOUR",
    "far": "SELECT a, c FROM S, R WHERE R.b - S.b BETWEEN -90 AND 5 WINDOW 1 HOUR MEMORY 128 MB",
    "few": "SELECT a, c FROM R, S WHERE R.b = S.b AND R.a BETWEEN 1 AND 2 AND S.c BETWEEN 3 AND 4 WINDOW 1 HOUR",
    "many": "SELECT a FROM R, S WHERE R.b = S.b AND R.a BETWEEN 1 AND 99 AND S.c BETWEEN 3 AND 99 WINDOW 1 HOUR",
    "low": "SELECT MIN(PER) FROM STOCK WHERE RISK < 3",
    "high": "SELECT MIN(PER) AS least FROM STOCK WHERE RISK BETWEEN 6 AND 9",
    "most": "SELECT MAX(PER) FROM STOCK WHERE RISK BETWEEN 6 AND 9",
    "tech": "SELECT PER FROM STOCK WHERE sector = 'TECH'",
    "bank": "SELECT RISK FROM STOCK WHERE sector = 'BANK'",
}


def queries() -> dict[str, Query]:
    return {name: parse(text, KNOWN) for name, text in TEXTS.items()}


def test_queries_of_one_shape_share():
    found = {tuple(one.queries): one.operator for one in group(queries())}
    assert found == {
        ("hour", "minute"): "join_shared",
        ("rows",): "join_streams",
        ("shed",): "join_streams",
        ("far", "near"): "StandingQueries",
        ("few", "many"): "StandingQueries",
        ("high", "low"): "Subscriptions",
        ("most",): "Subscriptions",
        ("bank", "tech"): "filter",
    }


def test_a_group_is_described_alike_by_all_of_its_queries():
    """One of many windows, bands or ranges was told as that of all."""
    for one in group(queries()):
        assert len({query.shape.describe_group() for query in one.queries.values()}) == 1, one.queries.keys()
        assert (
            len({query.shape.describe() for query in one.queries.values()}) == len(one.queries)
            or one.operator == "filter"
        )


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"values": {1: 2}}, "values has 1, which is no name"),
        ({"values": {"low": 1, "LOW": 2}}, "values has 'LOW' twice"),
        ({"functions": {"f": (abs, pa.int64()), "F": (abs, pa.int64())}}, "functions has 'F' twice"),
        ({"functions": {"f": (abs, "bool")}}, "'f' comes without its type"),
        ({"functions": {"f": abs}}, "'f' comes without its type"),
    ],
)
def test_what_is_given_by_name_is_looked_at_first(given, match):
    """Of two names that differ by letter case one was lost; others ended in a trace."""
    with pytest.raises(BadOption, match=match):
        sql("SELECT low FROM t", **given)


def test_what_a_text_promises_is_planned_to_the_second():
    text = "CREATE VIEW least AS SELECT sector, MIN(PER) FROM STOCK GROUP BY sector ANSWER WITHIN 3661 SECONDS"
    (view,) = group({"least": parse(text, KNOWN)})
    assert plan_of(view, slots=1).answer_within == 3661.0


def test_waiting_for_several_flows_tells_what_went_wrong_with_any():
    class Endless:
        stopped = False

        def wait(self, seconds):
            if seconds is None:
                raise AssertionError("nobody would hear of the others")
            return False

        def stop(self):
            self.stopped = True

    class Failing(Endless):
        def __init__(self, fault):
            self.fault = fault

        def wait(self, seconds):
            raise self.fault

    with pytest.raises(ValueError, match="mine"):
        Started([Endless(), Failing(ValueError("mine"))]).wait()
    assert not Started([Endless(), Endless()]).wait(0.01)
    with pytest.raises(KeyboardInterrupt):
        Started([other := Endless(), Failing(KeyboardInterrupt())]).wait()
    assert other.stopped


def test_groups_do_not_depend_on_the_order_nor_on_who_else_is_there():
    every = queries()
    names = list(every)
    whole = group(every)
    for seed in range(20):
        random.Random(seed).shuffle(names)
        assert group({name: every[name] for name in names}) == whole
        some = set(names[: seed + 1])
        mates = {frozenset(one.queries) & some for one in whole} - {frozenset()}
        assert {frozenset(one.queries) for one in group({n: every[n] for n in names if n in some})} == mates


def test_memory_is_the_most_that_one_asks_for():
    both = next(one for one in group(queries()) if "near" in one.queries)
    assert both.memory == 128 << 20


def test_explain_says_with_whom_and_what_it_costs():
    every = queries()
    said = explain(every["minute"], {name: query for name, query in every.items() if name != "minute"}, slots=2)
    assert "shares   one join with hour; windows of 1 min, 1 h" in said
    assert "join_shared on left_LocationId = right_LocationId" in said
    assert "memory   64 MB in all" in said
    assert "with no other query yet" in explain(every["most"], every | {"most": every["low"]})


def test_columns_that_nobody_looks_at_are_not_carried():
    one = next(one for one in group(queries()) if "few" in one.queries)
    assert one.columns(0) == ("timestamp", "a", "b")


def messages(*rows: tuple) -> pa.RecordBatch:
    """(order, added, removed, inner left and right, outer left and right)."""
    names = ["at", "added", "removed", "inner_left", "inner_right", "outer_left", "outer_right"]
    types = [pa.int64()] + [pa.float64()] * 6
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, names)


def total(function: str) -> Answer:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("at", pa.int64())])
    catalogue = Catalogue.of({"t": Stream.of("t", schema, key="id", order="at")})
    return answer_of(parse(f"SELECT {function}(y) AS total FROM t WHERE x BETWEEN 2 AND 7", catalogue))


def test_a_group_reads_again_what_its_flow_began_with(tmp_path):
    pq.write_table(pa.table({"k": [1], "v": ["a"]}), tmp_path / "stock.parquet")
    names = ("k", "k int64, n", "n", "left_k")
    stream = pa.schema([(name, pa.int64()) for name in names])
    known = Catalogue.of({"t": stream}, {"p": tmp_path / "stock.parquet"})
    for tail in ("", " JOIN p USING (k)"):
        whole, few = (Group({"q": parse(f"SELECT {columns} FROM t{tail}", known)}) for columns in ("t.*", 't.k, t."n"'))
        said = plan_of(whole, slots=1).identity()["stream columns"]
        assert reads_again(few, said).columns(0) == names
        assert plan_of(reads_again(few, said), slots=1).identity() == plan_of(whole, slots=1).identity()
        assert reads_again(few, f"gone int64, {said}") == few


def test_totals_are_exact_and_go_on_after_a_restart():
    inside, outside = (3.0, 3.0, None, None), (9.0, 9.0, None, None)
    first = total("sum")
    got = first(messages((1, 0.1, None, *inside), (2, 0.2, None, *inside), (3, 5.0, None, *outside)))
    assert got.to_pydict() == {"at": [1, 2], "total": [0.1, 0.30000000000000004]}
    again = total("sum")
    again.restore(first.state())
    assert again(messages((4, None, 0.2, *inside))).to_pydict() == {"at": [4], "total": [0.1]}
    assert again(messages((5, None, 0.1, *inside))).to_pydict() == {"at": [5], "total": [None]}
    counted, mean = total("count"), total("avg")
    both = messages((1, 1.0, None, *inside), (2, 4.0, None, *inside))
    assert counted(both)["total"].to_pylist() == [1, 2]
    assert mean(both)["total"].to_pylist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("function", "kind", "value", "third"),
    [
        ("SUM", pa.int8(), 100, 300),
        ("SUM", pa.int32(), 2**31 - 1, 3 * (2**31 - 1)),
        ("SUM", pa.int64(), 2**53 + 1, 3 * (2**53 + 1)),
        ("SUM", pa.decimal128(10, 2), Decimal("-1.10"), Decimal("-3.30")),
        ("SUM", pa.decimal128(18, 0), Decimal(10**18 - 1), Decimal(3 * 10**18 - 3)),
        ("SUM", pa.float32(), 0.5, 1.5),
        ("SUM", pa.float64(), 1.7e308, float("inf")),
        ("AVG", pa.decimal128(10, 2), Decimal("1.10"), 1.1),
        ("COUNT", pa.decimal128(10, 2), Decimal("1.10"), 3),
        ("COUNT", pa.date32(), date(2026, 1, 1), 3),
        ("COUNT", pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), 3),
    ],
)
def test_totals_of_every_type_are_exact_before_and_after_a_restart(function, kind, value, third):
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", kind), ("at", pa.int64())])
    catalogue = Catalogue.of({"t": Stream.of("t", schema, key="id", order="at")})
    query = parse(f"SELECT {function}(y) AS total FROM t WHERE x < 9", catalogue)
    channel = plan_of(Group({"query": query}), slots=1).channels["results"]
    row = pa.RecordBatch.from_pylist([dict.fromkeys(channel.names) | {"at": 1, "added": value}], schema=channel)
    answer = answer_of(query)
    for _ in range(3):
        again = answer_of(query)
        again.restore(answer.state())
        got, same = answer(row), again(row)
        assert got == same
        answer = again
    assert got["total"].to_pylist() == [third]


def test_a_sum_that_no_number_can_hold_is_told():
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.int64()), ("at", pa.int64())])
    catalogue = Catalogue.of({"t": Stream.of("t", schema, key="id", order="at")})
    query = parse("SELECT SUM(y) AS total FROM t WHERE x < 9", catalogue)
    channel = plan_of(Group({"query": query}), slots=1).channels["results"]
    row = dict.fromkeys(channel.names) | {"at": 1, "added": 2**63 - 1}
    with pytest.raises(BadQuery, match="beyond what int64 can hold"):
        answer_of(query)(pa.RecordBatch.from_pylist([row, row], schema=channel))


@pytest.mark.parametrize(
    ("kind", "values", "constant"),
    [
        (pa.int32(), [1, 2, None], "1.5"),
        (pa.int8(), [44, 1], "300"),
        (pa.int8(), [44, 1], "44.0"),
        (pa.decimal128(10, 2), [Decimal("1.23"), Decimal("1.20")], "1.234"),
        (pa.decimal128(10, 2), [Decimal("1.23"), Decimal("1.20")], "1.2"),
        (pa.float32(), [0.1, 0.5], "0.1"),
        (pa.float32(), [0.1, 0.5], "0.5"),
        (pa.string(), ["x", None], "'x'"),
        (pa.bool_(), [True, False], "TRUE"),
    ],
)
def test_a_column_that_divides_an_aggregate_is_compared_as_in_any_condition(kind, values, constant):
    """A constant is not made to fit: 1.5 stopped the query, and 1.234 was 1.23."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("at", pa.int64()), ("part", kind)])
    catalogue = Catalogue.of({"t": Stream.of("t", schema, key="id", order="at")})
    chosen = Answer(parse(f"SELECT at FROM t WHERE part = {constant}", catalogue))
    counted = answer_of(parse(f"SELECT COUNT(*) FROM t WHERE x < 9 AND part = {constant}", catalogue))
    rows = pa.array(values, kind)
    at = pa.array(range(len(values)), pa.int64())
    some = messages(*((n, 1.0, None, None, 3.0, None, None) for n in range(len(values)))).append_column("part", rows)
    table = pa.RecordBatch.from_arrays([at, pa.nulls(len(values), pa.float64()), at, rows], schema=schema)
    assert counted(some)["at"].to_pylist() == chosen(table)["at"].to_pylist()


def _joined(how: str, condition: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """An outer join of two streams, by the kernel that would run it and by DuckDB."""
    rng = random.Random(f"{how} {condition}")
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def some(name: str, value: str) -> pa.Table:
        rows = [(rng.choice([None, *range(12)]), rng.randrange(9), moment + timedelta(seconds=n)) for n in range(60)]
        # Later ones, which say that nothing comes any more for those before.
        rows += [(None, 100, moment + timedelta(hours=n)) for n in range(1, 9)]
        kinds = (pa.int64(), pa.int64(), pa.timestamp("us", "UTC"))
        names = ("k", value, name)
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        return pa.table(columns, names)

    one, two = some("asked", "x"), some("answered", "y")
    streams = {
        "one": Stream.of("one", one.schema, event_time="asked"),
        "two": Stream.of("two", two.schema, event_time="answered"),
    }
    text = f"SELECT one.k, x, y, two.k AS l FROM one {how} JOIN two ON {condition} WHERE x IS NULL OR x < 7"
    query = parse(f"{text} WINDOW 10 SECONDS", Catalogue.of(streams))
    group = Group({"q": query})
    plan = plan_of(group, slots=1)
    kernel = Host(lambda: plan.make(0), event_time=EventTime(("left_asked", "right_answered"), 0))
    inputs = inputs_of(group)
    sides = [
        given.select([old for old, _ in each.columns]).rename_columns([new for _, new in each.columns])
        for given, each in zip((one, two), inputs, strict=True)
    ]
    sides = [
        side.append_column(each.every, pa.array([0] * 68, pa.int32())) if each.every else side
        for side, each in zip(sides, inputs, strict=True)
    ]
    batches = [
        [Portion(side, part) for side in (0, 1) for part in sides[side].slice(first, 7).combine_chunks().to_batches()]
        for first in [*range(0, 56, 7), 56, 63]
    ]
    found = kernel.run(batches)["results"]
    answer = group.answer("q")
    ours = [tuple(row.values()) for part in found.to_batches() for row in answer(part).to_pylist()]
    near = f"({condition}) AND abs(date_diff('second', asked, answered)) <= 10"
    theirs = duckdb.sql(text.replace(condition, near)).fetchall()
    ours, theirs = ([row for row in found if 100 not in row] for found in (ours, theirs))
    return sorted(ours, key=repr), sorted(theirs, key=repr)


@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "FULL OUTER"])
@pytest.mark.parametrize("condition", ["one.k = two.k", "one.k = two.k AND x > 4 AND y < 7", "x + y = 5"])
def test_rows_without_partners_are_results_of_outer_joins(how, condition):
    ours, theirs = _joined(how, condition)
    assert ours == theirs
    assert any(None in row for row in ours)


@pytest.mark.parametrize("how", ["INNER", "LEFT", "FULL OUTER"])
def test_a_column_may_equal_several_of_the_other_side(how):
    """All conditions but the last on a column were lost."""
    ours, theirs = _joined(how, "one.k = two.k AND one.k = y")
    assert ours == theirs
    assert any(None not in row for row in ours)


@pytest.mark.parametrize("name", ["every", "EVERY"])
def test_a_join_without_key_takes_streams_with_a_column_of_any_name(name):
    """The key that all of its rows have was called as one of theirs."""
    schema = pa.schema([(name, pa.int64()), ("every_", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    streams = {side: Stream.of(side, schema, event_time="at") for side in ("one", "two")}
    text = f"SELECT one.{name} FROM one, two WHERE one.{name} <> two.{name} WINDOW 1 MINUTE"
    whole = Group({"q": parse(text, Catalogue.of(streams))})
    for each in inputs_of(whole, every_column=True):
        names = [new.lower() for _, new in each.columns]
        assert each.every
        assert each.every.lower() not in names
    assert plan_of(whole, slots=1)


def test_a_table_may_have_a_column_that_a_streams_would_be_called_as(tmp_path):
    """In their join the stream's `n` was `left_n`, whatever the table had: it was refused."""
    pq.write_table(pa.table({"id": [1, 2], "LEFT_N": [10, 20]}), tmp_path / "stock.parquet")
    known = Catalogue.of(
        {"orders": pa.schema([("id", pa.int64()), ("n", pa.int64())])}, {"stock": tmp_path / "stock.parquet"}
    )
    whole = Group({"q": parse("SELECT o.n, s.* FROM orders o, stock s WHERE o.id = s.id", known)})
    (given,) = inputs_of(whole)
    rows = pa.record_batch([[2, 1], [5, 6]], given.schema)
    kernel = Host(lambda: plan_of(whole, slots=1).make(0))
    found = kernel.run([[Portion(0, rows)]])["results"].combine_chunks().to_batches()[0]
    assert sorted(map(tuple, (row.values() for row in whole.answer("q")(found).to_pylist()))) == [
        (5, 2, 20),
        (6, 1, 10),
    ]
