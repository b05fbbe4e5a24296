"""Bad input to `join_table`, found before anything runs: each error says what is wrong, why, and what to do."""

import os
import pickle
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import (
    BadOption,
    KeyTypeMismatch,
    MemoryTooSmall,
    PlanError,
    UnknownColumn,
    UnreadableTable,
    UnsupportedType,
)
from penstock.plan.join_table import JoinTablePlan
from penstock.plan.table_joins import plan_join_table
from penstock.plan.units import parse_size
from penstock.spark.agreement import terms_of

STREAM = pa.schema([("order_id", pa.int64()), ("product_id", pa.int64()), ("day", pa.date32()), ("note", pa.string())])


@pytest.fixture
def products(tmp_path):
    rows = pa.table(
        {"product_id": np.arange(5_000), "since": pa.array([0] * 5_000, pa.date32()), "price": [1.5] * 5_000}
    )
    (tmp_path / "products").mkdir()
    pq.write_table(rows, tmp_path / "products" / "a.parquet", row_group_size=1_000)
    return tmp_path / "products"


def plan(products, stream=STREAM, key="product_id", **options):
    options = {"on": ("product_id",), "memory": "64MB", "slots": 2} | options
    return JoinTablePlan.checked(stream, ps.table(products, key=key), **options)


# -- columns and keys ------------------------------------------------------------------------------------------------


def test_missing_column_of_the_stream_comes_with_the_nearest_names(products):
    with pytest.raises(UnknownColumn, match=r"The stream has no column 'produkt_id'") as caught:
        plan(products, on=("produkt_id",))
    assert "Did you mean 'product_id'" in str(caught.value)
    assert "order_id, product_id, day, note" in str(caught.value)


def test_missing_key_of_the_table_comes_with_the_nearest_names(products):
    with pytest.raises(UnknownColumn, match=r"products has no column 'productid'") as caught:
        ps.table(products, key="productid")
    assert "Did you mean 'product_id'?" in str(caught.value)


def test_keys_of_different_kinds_come_with_the_cast(products):
    with pytest.raises(KeyTypeMismatch, match="'note' is a string and the table's key 'product_id' is an integer") as e:
        plan(products, on=("note",))
    assert "stream.withColumn('note', col('note').cast('BIGINT'))" in str(e.value)


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int16(), True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(10, 2), pa.decimal128(38, 2), True),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), False),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.string(), False),
        (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.bool_(), pa.int8(), False),
        (pa.string(), pa.binary(), False),
    ],
)
def test_keys_fit_when_they_are_of_one_kind(tmp_path, ours, theirs, fits):
    pq.write_table(pa.table({"k": pa.array([], theirs), "v": pa.array([], pa.int64())}), tmp_path / "t.parquet")
    schema = pa.schema([("id", pa.int64()), ("k", ours)])
    if fits:
        assert plan(tmp_path / "t.parquet", schema, key="k", on=("k",)).condition.on == ("k",)
    else:
        with pytest.raises(KeyTypeMismatch, match="Cast the stream's column"):
            plan(tmp_path / "t.parquet", schema, key="k", on=("k",))


def test_a_nested_column_is_no_key(tmp_path):
    pq.write_table(pa.table({"k": pa.array([[1]], pa.list_(pa.int64()))}), tmp_path / "t.parquet")
    with pytest.raises(UnsupportedType, match=r"'k'.*cannot be a join key") as caught:
        ps.table(tmp_path / "t.parquet", key="k")
    assert "Join on another column" in str(caught.value)


def test_on_needs_as_many_columns_as_the_key(products):
    with pytest.raises(BadOption, match=r"`on` names 2 columns, and the key of .* has 1") as caught:
        plan(products, on=("product_id", "day"))
    assert "Give one stream column for each of: product_id" in str(caught.value)
    with pytest.raises(BadOption, match=r"`on` names 1 columns, and the key of .* has 2") as caught:
        plan(products, key=["product_id", "since"])
    assert "product_id, since" in str(caught.value)


@pytest.mark.parametrize("name", ["price", "PRICE"])
def test_a_column_that_both_have_is_refused_with_a_way_to_rename_it(products, name):
    schema = STREAM.append(pa.field(name, pa.float64()))
    with pytest.raises(PlanError, match="both have 'price'") as caught:
        plan(products, schema)
    assert f"withColumnRenamed('{name}', 'stream_{name}')" in str(caught.value)


def test_columns_of_the_table_that_spark_takes_for_one_are_refused(tmp_path):
    pq.write_table(pa.table({"product_id": [1], "v": [1], "V": [2]}), tmp_path / "a.parquet")
    with pytest.raises(PlanError, match="has both 'v' and 'V'"):
        plan(tmp_path)
    assert plan(tmp_path, how="anti").channels["results"] == STREAM


def test_the_key_itself_may_have_the_same_name_on_both_sides(products):
    assert plan(products).channels["results"].names == ["order_id", "product_id", "day", "note", "since", "price"]


def test_several_faults_are_reported_at_once(products):
    schema = STREAM.append(pa.field("price", pa.float64()))
    with pytest.raises(PlanError) as caught:
        plan(
            products, schema, key=["product_id", "since"], on=("note", "dayy"), slots=1_000, memory="lots",
            division="kee", pages_per_step=0,
        )  # fmt: skip
    text = str(caught.value)
    assert "7 faults in this join" in text
    for part in ("'note' is a string", "no column 'dayy'", "both have 'price'", "slots=1000", "memory='lots'",
                 "division='kee'", "pages_per_step=0"):  # fmt: skip
        assert part in text, part


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["64", "64 MX", "lots", "", "-1MB", "1e3MB", True, 1.5, None])
def test_memory_that_is_no_size(products, memory):
    with pytest.raises(BadOption, match=r"memory=.* is not a size") as caught:
        plan(products, memory=memory)
    assert 'memory="64MB"' in str(caught.value)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_budget_too_small_names_the_smallest_that_does(tmp_path, products, prepared, slots):
    if prepared:
        ps.prepare(products, tmp_path / "prepared", key="product_id", page_bytes=16 << 10)
        products = tmp_path / "prepared"
    with pytest.raises(MemoryTooSmall, match="64 KB cannot hold one page and one packet") as caught:
        plan(products, memory="64KB", slots=slots)
    text = str(caught.value)
    assert "penstock prepare" in text
    assert ("fewer slots: slots=2" in text) == (slots == 4)
    least = re.search(r'at least memory="([^"]+)"', text)[1]
    made = plan(products, memory=least, slots=slots)
    for slot in range(slots):
        made.make(slot)
    with pytest.raises(MemoryTooSmall):
        plan(products, memory=int(parse_size(least) * 0.9), slots=slots)


def test_a_budget_too_small_is_never_told_as_the_one_that_does(products):
    with pytest.raises(MemoryTooSmall) as caught:
        plan(products, memory="64KB")
    least = parse_size(re.search(r'at least memory="([^"]+)"', str(caught.value))[1])
    for memory in range(least - 110, least):
        try:
            plan(products, memory=memory)
        except MemoryTooSmall as fault:
            given, enough = re.search(r'^(.*) cannot hold .*at least memory="([^"]+)"', str(fault), re.DOTALL).groups()
            assert given != enough


@pytest.mark.parametrize(
    "option", [{"order_by": "day"}, {"shed": "topw", "max_lag": "1 second"}, {"follow": True, "patience": 2}]
)
def test_a_budget_that_is_told_does_for_what_the_join_does_beside(products, monkeypatch, option):
    monkeypatch.setattr("penstock.tables.versions.Versions.kept", True)

    def make(memory):
        return plan_join_table(
            STREAM, ps.table(products, key="product_id"), on="product_id", memory=memory, slots=2, **option
        )

    with pytest.raises(MemoryTooSmall) as caught:
        make("64KB")
    make(re.search(r'at least memory="([^"]+)"', str(caught.value))[1])


@pytest.mark.parametrize("slots", [0, -1, 65])
def test_slots_out_of_range(products, slots):
    with pytest.raises(BadOption, match=f"slots={slots} is not between 1 and 64"):
        plan(products, slots=slots)


@pytest.mark.parametrize(
    "option", [{"slots": "2"}, {"slots": 1.5}, {"slots": True}, {"pages_per_step": 1.5}, {"pages_per_step": "3"}]
)
def test_counts_are_whole_numbers(products, option):
    with pytest.raises(BadOption, match="is not a whole number"):
        plan(products, **option)


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"on": 5}, "does not name columns"),
        ({"on": None}, "does not name columns"),
        ({"on": [None]}, "does not name columns"),
        ({"order_by": ["day"]}, "is not a column"),
        ({"follow": True, "patience": "3"}, "is not a whole number"),
        ({"shed": "samplew", "max_lag": "1 second", "seed": "x"}, "is not a whole number"),
        ({"shed": "samplew", "max_lag": "1 second", "inclusion": ""}, "is not a name of a column"),
    ],
)
def test_options_of_the_wrong_type_are_told_as_such(products, option, match):
    with pytest.raises(BadOption, match=match):
        plan_join_table(
            STREAM, ps.table(products, key="product_id"), **{"on": "product_id", "memory": "64MB", "slots": 2} | option
        )


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ps.as_of(None, time="day", since="since", until="since"), "on=None does not name columns"),
        (lambda: ps.as_of("product_id", time=5, since="since", until="since"), "5 is not a column"),
        (lambda: ps.band(None, below=1, above=1), "None is not a column"),
        (lambda: ps.where(len, on=["day", 3]), "does not name columns"),
        (lambda: ps.where(len, on=[]), "does not name columns"),
    ],
)
def test_conditions_are_of_columns_by_name(make, match):
    with pytest.raises(BadOption, match=match):
        make()


def test_a_predicate_that_takes_too_much_memory_may_be_asked_about_fewer_pairs(products):
    def same(ours, theirs):
        return ours["product_id"] == theirs["product_id"]

    options = {"how": "semi", "memory": "7MB"}
    with pytest.raises(MemoryTooSmall, match=r"candidates=1024"):
        plan(products, on=ps.where(same, on="product_id"), **options)
    plan(products, on=ps.where(same, on="product_id", candidates=1024), **options)


def test_a_fault_that_is_found_twice_is_told_once(products):
    with pytest.raises(UnknownColumn, match="no column 'weight'"):
        plan(products, key=["product_id", "price"], on=ps.range("weight"), how="semi")


def test_division_by_key_needs_a_prepared_table(products):
    with pytest.raises(BadOption, match="cannot be divided by key") as caught:
        plan(products, division="key")
    assert f"penstock prepare {products}" in str(caught.value)
    assert "--key product_id" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "on"),
    [("number", ps.where(len, on="product_id")), ("name", ps.similar("note", at_least=0.5, candidates=9))],
)
def test_a_row_that_one_slot_sets_aside_is_not_joined_by_another(tmp_path, key, on):
    """The slot that counts rows for all does not see what others set aside: such rows were told of by nobody."""
    pq.write_table(pa.table({"number": [1], "name": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(BadOption, match='cannot be divided by "pages"'):
        plan(tmp_path, key=key, on=on, division="pages")
    assert plan(tmp_path, key=key, on=on).division == "rows"


def test_an_unknown_division_is_refused_with_the_known_ones(products):
    with pytest.raises(BadOption, match="division='keys'") as caught:
        plan(products, division="keys")
    assert '"key"' in str(caught.value)
    assert '"pages"' in str(caught.value)


@pytest.mark.parametrize("pages", [0, -3])
def test_pages_per_step_must_go_forward(products, pages):
    with pytest.raises(BadOption, match=f"pages_per_step={pages}"):
        plan(products, pages_per_step=pages)


# -- paths -----------------------------------------------------------------------------------------------------------


def test_order_is_by_a_column_that_has_one(products):
    stream = STREAM.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(UnsupportedType, match=r"'tags' is a list<.*>, which has no order"):
        plan_join_table(
            stream, ps.table(products, key="product_id"), on="product_id", memory="64MB", slots=2, order_by="tags"
        )


def test_a_path_that_is_not_there_comes_with_its_neighbours(products):
    with pytest.raises(UnreadableTable, match="does not exist") as caught:
        ps.table(products.parent / "product", key="product_id")
    assert "'products'" in str(caught.value)
    assert "Check the path" in str(caught.value)


def test_an_empty_folder_is_no_table(tmp_path):
    with pytest.raises(UnreadableTable, match="holds no Parquet file") as caught:
        ps.table(tmp_path, key="k")
    assert "an empty table needs at least one file" in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"not Parquet at all", b"PAR1" + bytes(64) + b"PAR1"])
def test_a_file_that_is_not_parquet(tmp_path, body):
    (tmp_path / "a.parquet").write_bytes(body)
    with pytest.raises(UnreadableTable, match=r"a\.parquet cannot be read as Parquet") as caught:
        ps.table(tmp_path, key="k")
    assert "complete Parquet file" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(products):
    products.chmod(0)
    try:
        with pytest.raises(UnreadableTable, match="may not be read") as caught:
            ps.table(products, key="product_id")
    finally:
        products.chmod(0o755)
    assert "the right to read it" in str(caught.value)


def test_a_remote_path_is_refused(tmp_path):
    with pytest.raises(BadOption, match="s3://bucket/products is not a local path") as caught:
        ps.table("s3://bucket/products", key="k")
    assert "mounted" in str(caught.value)


@pytest.mark.parametrize("key", ["", [], ["k", "k"]])
def test_no_key(products, key):
    with pytest.raises((BadOption, UnknownColumn)):
        ps.table(products, key=key)


# -- what a plan says ------------------------------------------------------------------------------------------------


def test_a_plan_travels(products):
    made = plan(products)
    assert pickle.loads(pickle.dumps(made)) == made


def test_explain_says_what_runs_and_with_which_memory(products, tmp_path):
    text = plan(products, slots=2).explain()
    assert "join_table on product_id = product_id (inner, MESHJOIN)" in text
    assert "5,000 rows in 5 pages, Parquet" in text
    assert "2 slots, divided by pages" in text
    assert "64 MB in all, 32 MB a slot" in text
    assert "for rows with hot keys" in text
    band = ps.band("order_id", below=1, above=1)
    alone = pa.schema([STREAM.field("order_id")])
    assert "no cache for hot keys: this join is not by equal keys" in plan(products, alone, on=band).explain()
    ps.prepare(products, tmp_path / "prepared", key="product_id")
    at_once = plan(tmp_path / "prepared").explain()
    assert "divided by input" in at_once
    assert "hot keys" not in at_once
    assert "divided by key" in plan(tmp_path / "prepared", pages_per_step=2).explain()


def test_the_budget_may_change_between_runs_and_slots_may_not(products):
    assert plan(products).identity() == plan(products, memory="32MB").identity()
    assert plan(products).identity() != plan(products, slots=3).identity()
    assert plan(products, division="input").identity() == plan(products, division="input", slots=3).identity()
    other = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    assert plan(products).identity() != plan(products, other, on=("k",)).identity()


def test_another_predicate_is_another_plan_and_the_same_one_elsewhere_is_not(products):
    alone = pa.schema([STREAM.field("order_id")])

    def by(limit):
        def above(ours, theirs):
            nonlocal limit
            limit += 1
            return ours["order_id"].to_numpy() > limit

        return plan(products, alone, on=ps.where(above, on="order_id"))

    one = by(1)
    assert "above" in one.identity()["predicate"]
    assert one.identity() == by(1).identity()
    assert one.identity() != by(2).identity()
    # It is what it was when the join was planned, also if the function changes what it holds.
    one.condition.predicate(pa.record_batch({"order_id": [1]}), None)
    assert one.identity() == by(1).identity()
    # What is done about an error, and how many pairs are asked about at once, may change.
    others = ps.where(len, on="order_id"), ps.where(len, on="order_id", candidates=9, on_error="set_aside")
    assert len({plan(products, alone, on=on).identity()["predicate"] for on in others}) == 1


def test_what_decides_when_a_row_is_shed_is_among_the_terms_of_a_batch(products):
    def terms(**more):
        options = {"shed": "samplew", "max_lag": "1 second"} | more
        made = plan_join_table(STREAM, ps.table(products, key="product_id"), on="product_id", memory="64MB", slots=2,
                               **options)  # fmt: skip
        return terms_of(made)

    assert terms() == terms()
    assert terms()["overload.max_lag"] == "1.0"
    for other in ({"max_lag": "2 seconds"}, {"seed": 1}):
        assert terms() != terms(**other)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_whoever_gives_no_division_gets_one_that_fits(products, tmp_path, how, prepared):
    place = tmp_path / "prepared" if prepared else products
    if prepared:
        ps.prepare(products, place, key="product_id")
    alone = pa.schema([("order_id", pa.int64()), ("ordered", pa.date32())])
    conditions = (
        ("order_id",),
        ps.as_of("order_id", time="ordered", since="since", until="since"),
        ps.band("order_id", below=1, above=1),
        ps.where(len, on="order_id"),
    )
    for on in conditions:
        for more in ({}, {"follow": True}, {"order_by": "order_id"}, {"shed": "topw", "max_lag": "1 second"}):
            if "shed" in more and on != ("order_id",):
                continue  # only equal keys are shed
            table = ps.table(place, key="product_id")
            made = plan_join_table(alone, table, on=on, how=how, memory="128MB", slots=2, **more)
            assert made.division != "pages" or (how == "inner" and not more)
            assert (made.division == "input") == (prepared and not more and made.condition.by_key)


def test_a_prepared_table_is_scanned_in_every_micro_batch_while_that_takes_no_longer_than_keeping_state(
    products, tmp_path, monkeypatch
):
    ps.prepare(products, tmp_path / "prepared", key="product_id")
    assert plan(tmp_path / "prepared").division == "input"
    assert plan(tmp_path / "prepared", memory="16MB").division == "key", "a micro-batch may take several passes"
    monkeypatch.setattr("penstock.plan.join_table._QUICK_PASS", 8 * 4_999)
    assert plan(tmp_path / "prepared").division == "key"
    assert plan(tmp_path / "prepared", division="input").keeps_nothing


@pytest.mark.parametrize("more", [{"order_by": "order_id"}, {"follow": True}, {"shed": "keepw", "max_lag": "1 s"}])
def test_joins_that_keep_something_are_not_divided_by_input(products, more):
    over = ps.table(products, key="product_id")
    with pytest.raises(BadOption, match="keep something from one micro-batch to the next"):
        plan_join_table(STREAM, over, on="product_id", memory="64MB", slots=2, division="input", **more)


def test_pages_of_a_step_are_nothing_to_say_of_a_join_that_scans_all(products):
    with pytest.raises(BadOption, match="These scan every page"):
        plan(products, division="input", pages_per_step=3)
