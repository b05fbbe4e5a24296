"""New surrogate keys while the table gets others, or has no room for more."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadOption, MemoryTooSmall, UnsupportedType
from penstock.kernels.contract import RESULTS
from penstock.kernels.mesh.surrogate import ASSIGNED
from penstock.plan.join_table import JoinTablePlan
from penstock.plan.surrogate import SurrogateKeysPlan
from penstock.tables import table
from penstock.tables.keys import hash_keys, slot_of
from penstock.testing import Host

STREAM = pa.schema([("code", pa.string())])


def planned(folder, numbers, kind="int64", slots=2, memory="64MB", **options):
    """Surrogate keys over a table that has now these."""
    codes = pa.array([str(code) for code in numbers], pa.string())
    rows = pa.table({"code": codes, "number": pa.array(numbers.values(), pa.type_for_alias(kind))})
    pq.write_table(rows, folder / "a.parquet", row_group_size=2)
    join = JoinTablePlan.checked(
        STREAM, table(folder, key="code"), on=("code",), memory=memory, slots=slots, how="left"
    )
    return SurrogateKeysPlan.of(join, surrogate="number", **options)


def step(hosts, *codes):
    """A step of every slot with the codes that are its own; the next one starts from what is stored."""
    rows = pa.record_batch({"code": list(codes)}, schema=STREAM)
    owner = slot_of(hash_keys(rows.columns), len(hosts))
    for slot, host in enumerate(hosts):
        host.step(rows.filter(pa.array(owner == slot)))
        host.drain()
        host.crash()


def given(hosts, channel):
    return [(row["code"], row["number"]) for host in hosts for row in host.results()[channel].to_pylist()]


def test_numbers_that_the_table_got_meanwhile_are_not_given_again(tmp_path):
    first = planned(tmp_path, {"a": 1})
    hosts = [Host(lambda slot=slot: first.make(slot)) for slot in range(2)]
    step(hosts, *"pqrst")
    later = planned(tmp_path, {"a": 1} | {f"other {number}": number for number in range(2, 40)})
    for slot, host in enumerate(hosts):
        host.make = lambda slot=slot: later.make(slot)
    step(hosts, *"pqruvw")
    step(hosts, *"stuvwxyz")
    numbers = dict(given(hosts, ASSIGNED))
    assert len(given(hosts, ASSIGNED)) == len(set(numbers.values())) == 11
    assert all(number >= 40 for code, number in numbers.items() if code in "uvwxyz")
    assert set(given(hosts, RESULTS)) == set(numbers.items())


def test_numbers_below_zero_are_left_to_the_table(tmp_path):
    plan = planned(tmp_path, {"a": -5}, slots=1)
    hosts = [Host(lambda: plan.make(0))]
    for _ in range(3):
        step(hosts, *"bcdefgh")
    assert len(given(hosts, ASSIGNED)) == 7
    assert set(given(hosts, RESULTS)) == set(given(hosts, ASSIGNED))


def test_a_column_that_holds_no_greater_number_is_told(tmp_path):
    plan = planned(tmp_path, {"a": 126}, kind="int8", slots=1)
    host = Host(lambda: plan.make(0))
    with pytest.raises(UnsupportedType, match=r"128 is greater than a column of type int8 can hold"):
        host.run([pa.table({"code": ["b", "c"]}, schema=STREAM)])


@pytest.mark.parametrize("largest", [2**63 - 3, 2**63 - 1])
def test_numbers_do_not_go_on_below_all_others(tmp_path, largest):
    """Beyond 64 bits there is no number; there was one, below zero."""
    plan = planned(tmp_path, {"a": largest}, kind="int64", slots=1)
    host = Host(lambda: plan.make(0))
    with pytest.raises(
        UnsupportedType, match=r"is greater than a column of type int64 can hold(?s:.*)Number the table anew"
    ):
        host.run([pa.table({"code": ["b", "c", "d"]}, schema=STREAM)])


def test_the_first_number_is_a_whole_one(tmp_path):
    with pytest.raises(BadOption, match="first='7' is not a whole number"):
        planned(tmp_path, {"a": 1}, first="7")


@pytest.mark.parametrize(("first", "least"), [(0, 40), (7, 40), (39, 40), (100, 100)])
def test_numbers_of_the_table_are_not_given_whatever_the_first_is_to_be(tmp_path, first, least):
    """As in a second run with a new checkpoint, when the numbers of the run before are in the table."""
    plan = planned(tmp_path, {f"other {number}": number for number in range(1, 40)}, first=first)
    hosts = [Host(lambda slot=slot: plan.make(slot)) for slot in range(2)]
    step(hosts, *"pqrst")
    numbers = [number for _, number in given(hosts, ASSIGNED)]
    assert len(set(numbers)) == 5
    assert least <= min(numbers) < least + 10


def test_keys_that_a_smaller_budget_has_no_room_for_are_told_at_once(tmp_path):
    large, small = (planned(tmp_path, {"a": 1}, slots=1, memory=memory) for memory in ("64MB", "6MB"))
    host = Host(lambda: large.make(0))
    host.step(pa.table({"code": [f"{n:0100d}" for n in range(40_000)]}, schema=STREAM))
    host.drain()
    host.crash()
    host.make, host.budget = lambda: small.make(0), small.memory
    with pytest.raises(MemoryTooSmall, match="40,000 new surrogate keys do not fit"):
        host.step(pa.table({"code": ["a"]}, schema=STREAM))
