"""Gateways without a broker: each way of delivery tells each change once; slow subscribers harm nobody."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker.answers import Answers
from penstock.broker.cells import CellMap, adapt
from penstock.broker.delivery import ByCell, Unicast
from penstock.broker.gateway import Change, Gateway, Subscriber
from penstock.broker.messages import FLAGS, HAS_VALUE, SEQ, VALUE, WIDTH, Frame, Kind
from penstock.errors import BadOption
from penstock.kernels.subscriptions.codes import encode
from penstock.kernels.subscriptions.engine import AGGREGATES
from tests.broker.world import World


def told(subscribers: list[Subscriber]) -> list[list[object]]:
    return [[change.value for change in one.take()] for one in subscribers]


#: COUNT, AVG and DISTINCT are not relaxed any further for CN: SUM stands for what is told of every value.
WAYS = [
    *((way, agg) for way in ("S-CN", "S-UN") for agg in AGGREGATES),
    *(("CN", agg) for agg in ("min", "max", "sum")),
]


@pytest.mark.parametrize(("way", "agg"), WAYS)
def test_every_way_of_delivery_tells_each_change_once(way, agg):
    world = World(agg, relaxed=way == "CN", seed=AGGREGATES.index(agg))
    cells = CellMap()
    ranges = list(world.ranges())
    x1, x2 = np.array(ranges).T.copy()
    adapt(cells, x1, x2, 6)
    gateways = [Gateway(world.kind, cells) for _ in range(3)]
    subscribers = [gateways[n % 3].subscriber(*ends) for n, ends in enumerate(ranges)]
    for n, gateway in enumerate(gateways):
        gateway.let_in(subscribers[n::3])
    answers = Answers(world.kind)
    answers.add(len(ranges))
    for _ in range(4):
        rows = world.kind.rows(world.batch(60))
        if way == "S-UN":
            server = Unicast(["a", "b", "c"], np.arange(len(ranges)) % 3, x1, x2)
            for parcel in server.parcels(rows):
                for row, number in zip(parcel.rows, parcel.subscribers, strict=True):
                    changed, now = answers.apply(int(number), row)
                    if changed:
                        subscribers[number].push(Change(int(row[SEQ]), answers.value_of(now)))
        else:
            for parcel in ByCell(cells).parcels(rows):
                for gateway in gateways:
                    if ("_", parcel.cell) in gateway.rooms:
                        gateway.take(("_", parcel.cell), Frame(-1, parcel.rows))
    assert told(subscribers) == [world.answers(*ends) for ends in ranges]


def test_nothing_to_say_is_said_to_nobody():
    nothing = np.zeros((0, 8), np.int64)
    assert list(ByCell(CellMap()).parcels(nothing)) == []
    assert (
        list(Unicast(["a"], np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.int64)).parcels(nothing)) == []
    )


def test_frames_that_come_twice_tell_nothing_twice_and_a_missing_one_is_noticed():
    world = World()
    gateway = Gateway(world.kind)
    subscriber = gateway.subscriber(0, 20)
    gateway.let_in([subscriber])
    first, second, third = (world.kind.rows(world.batch(20)) for _ in range(3))
    frames = [Frame(-1, first), Frame(int(first[-1, SEQ]), second), Frame(int(second[-1, SEQ]), third)]
    for frame in (frames[0], frames[0]):
        assert not gateway.missing(("_", 0), frame)
        gateway.take(("_", 0), frame)
    assert gateway.missing(("_", 0), frames[2])
    for frame in (frames[1], frames[0], frames[2]):
        gateway.take(("_", 0), frame)
    assert told([subscriber]) == [world.answers(0, 20)]


@pytest.mark.parametrize("two", [False, True])
def test_subscribers_stay_told_while_their_cells_are_split(two: bool):
    world = World(seed=3, two=two, width=12 if two else 20)
    gateway = Gateway(world.kind)
    ranges = list(world.ranges())
    subscribers = [gateway.subscriber(*ends) for ends in ranges]
    gateway.let_in(subscribers)
    last = -1
    for crowd in (1_000, 12, 5):
        cells = CellMap.from_json(gateway.cells.to_json())
        adapt(cells, *np.array(ranges).T[:2].copy(), crowd)
        gateway.adopt(cells)
        for parcel in ByCell(cells).parcels(world.kind.rows(world.batch(50))):
            gateway.take(("_", parcel.cell), Frame.from_bytes(Frame(last, parcel.rows).to_bytes()))
    assert len(gateway.rooms) > 5
    assert told(subscribers) == [world.answers(*ends) for ends in ranges]


def test_a_slow_subscriber_is_told_to_read_again():
    world = World()
    gateway = Gateway(world.kind)
    slow, brisk = gateway.subscriber(0, 4, limit=3), gateway.subscriber(0, 4)
    gateway.let_in([slow, brisk])
    gateway.take(("_", 0), Frame(-1, world.kind.rows(world.batch(200))))
    answers = world.answers(0, 4)
    assert len(answers) > 6
    assert [change.value for change in brisk.take()] == answers
    (only,) = slow.take()
    assert only.reread
    assert only.value == answers[-1]
    while not (more := slow.take()):
        gateway.take(("_", 0), Frame(-1, world.kind.rows(world.batch(1))))
    assert [(change.value, change.reread) for change in more] == [(world.answers(0, 4)[-1], False)]


def test_an_inverted_range_and_one_without_ends_are_refused():
    gateway = Gateway(World().kind)
    with pytest.raises(BadOption, match="empty"):
        gateway.subscriber(5, 4)
    with pytest.raises(BadOption, match="no end"):
        gateway.subscriber(None, 4)
    with pytest.raises(BadOption, match="4 ends do not make a range"):
        gateway.subscriber(1, 4, 1, 4)
    with pytest.raises(BadOption, match="2 ends do not make two ranges"):
        Gateway(World(two=True).kind).subscriber(1, 4)
    with pytest.raises(BadOption, match="from 4 to 3 is empty"):
        Gateway(World(two=True).kind).subscriber(1, 4, 4, 3)


def test_sums_of_floats_come_back_to_what_they_were():
    import pyarrow as pa

    from penstock.broker.answers import Total

    total = Total()
    for value in (0.1, 1e308, -1e308, float("inf"), 0.2):
        total.add(value, 1)
    assert total.sum() == float("inf")
    for value in (1e308, float("inf"), -1e308, 0.2):
        total.add(value, -1)
    assert float(total.average()) == 0.1
    total.add(0.1, -1)
    assert total.sum() is None
    both = Total()
    both.add(float("inf"), 1)
    both.add(float("-inf"), 1)
    assert np.isnan(Answers(Kind("sum", pa.float64(), pa.float64())).value_of(both.sum()))


def test_an_empty_range_is_an_answer_to_come_with():
    """Zero is the code of NULL's place: the first answer of someone who comes with none must be told."""
    world = World("min")
    answers = Answers(world.kind)
    answers.add(1)
    answers.set(0, None)
    row = np.zeros((1, WIDTH), np.int64)
    assert list(answers.changes(row, np.array([[0, 0]]))) == [], "still empty"
    row[0, FLAGS] = HAS_VALUE
    assert list(answers.changes(row, np.array([[0, 0]]))) == [(0, 0, 0)]
    with pytest.raises(BadOption, match="which values"):
        Answers(Kind("sum", pa.int64(), pa.float64()), [None]).set(0, (1, float("inf")))


def test_those_who_know_different_messages_are_each_told_the_others():
    world = World("count")
    rows = world.kind.rows(world.batch(40))
    gateway, everything = Gateway(world.kind), (-1, 21)
    states = [len(world.states[seq]) for seq in rows[:, SEQ].tolist()]
    ahead, behind = (gateway.subscriber(*everything, after=at) for at in (9, -1))
    room = gateway.room(("_", 0))
    informed = gateway.answers(1)
    informed.set(0, states[9])
    room.add([ahead], informed, 9)
    room.add([behind], gateway.answers(1))
    for first in range(0, len(rows), 5):
        gateway.take(("_", 0), Frame(first - 1, rows[first : first + 5]))
    told = [[change.value for change in one.take()] for one in (ahead, behind)]
    want = world.answers(*everything)
    assert told == [world.answers(*everything, after=9), want]
    assert len(told[0]) < len(want)


@pytest.mark.parametrize("agg", ["sum", "avg"])
def test_sums_beyond_all_floats_are_infinite_and_come_back(agg):
    """What cannot be told from the answer before is no change; nothing keeps the cell from hearing what follows."""
    kind = Kind(agg, pa.int64(), pa.float64())
    values = [1e308, 1e308, 1e308, -1e308, -1e308]
    gateway, rows = Gateway(kind), np.zeros((7, WIDTH), np.int64)
    subscriber = gateway.subscriber(0, 20)
    gateway.let_in([subscriber])
    rows[:, SEQ], rows[:, FLAGS] = np.arange(7), HAS_VALUE
    rows[:, VALUE] = encode(pa.array([*values, 1.0, 0.0]))[0]
    gateway.take(("_", 0), Frame(-1, rows))
    exact = [sum(map(Fraction, [*values, 1.0, 0.0][:n])) / (n if agg == "avg" else 1) for n in range(1, 8)]
    want = [float(x) if abs(x) < 1.7e308 else float("inf") for x in exact]
    assert told([subscriber]) == [[x for n, x in enumerate(want) if not n or x != want[n - 1]]]


def test_values_that_are_only_counted_or_that_python_has_none_of_are_told():
    times = pa.timestamp("us")
    codes = np.array([2**62, 5, -(2**62)])
    for agg, want in (("count", [1, 2, 3]), ("min", [np.datetime64(int(code), "us") for code in codes[[0, 2]]])):
        gateway, rows = Gateway(Kind(agg, pa.int64(), times)), np.zeros((3, WIDTH), np.int64)
        subscriber = gateway.subscriber(0, 20)
        gateway.let_in([subscriber])
        rows[:, SEQ], rows[:, FLAGS], rows[:, VALUE] = np.arange(3), HAS_VALUE, codes
        gateway.take(("_", 0), Frame(-1, rows))
        (found,) = told([subscriber])
        assert (found if agg == "count" else [found[0], found[2]]) == want


def test_an_end_may_lie_beyond_what_a_narrow_column_holds():
    gateway = Gateway(Kind("min", pa.int8(), pa.int8()))
    assert gateway.subscriber(-1_000, 1_000).x2 == 1_000
    exact = Gateway(Kind("min", pa.float32(), pa.int8())).subscriber(0.0, 0.1).x2
    assert exact < encode(pa.array([0.1], pa.float32()))[0][0], "0.1 as a float32 is more than 0.1"
    odd = gateway.subscriber(0.5, float("inf"))
    assert (odd.x1, odd.x2) == (1, 2**63 - 1), "0 is not in it"
    odd = Gateway(Kind("min", pa.decimal128(9, 1), pa.int8())).subscriber(-0.55, Decimal("0.55"))
    assert (odd.x1, odd.x2) == (-5, 5)
    for nonsense in (float("nan"), "5", True):
        with pytest.raises(BadOption, match="no end"):
            gateway.subscriber(nonsense, 4)


def test_ends_that_decimals_and_dates_have_no_value_for_move_inwards():
    money = Kind("min", pa.decimal128(9, 2), pa.int64())
    least, most = encode(pa.array([Decimal("-9999999.99"), Decimal("9999999.99")], money.x))[0].tolist()
    for beyond in (Decimal("1e8"), 1e300, float("inf"), Decimal("1e40")):
        assert money.code(-beyond) < least
        assert money.code(beyond, upper=True) > most
    for end, code in ((0.1, 10), (0.57, 57), (-0.57, -57), (np.float64(0.3), 30), (np.int64(3), 300)):
        assert money.code(end) == money.code(end, upper=True) == code, "a float is what it is written as"
    whole = Kind("min", pa.int32(), pa.int64())
    assert (whole.code(np.float32(2.5)), whole.code(np.float32(2.5), upper=True)) == (3, 2)
    days = Kind("min", pa.date32(), pa.int64())
    begun = datetime.fromisoformat("2024-01-01T12:00")
    assert days.code(begun) == days.code(begun.date()) + 1, "the day has begun before"
    assert days.code(begun, upper=True) == days.code(datetime.fromisoformat("2024-01-01")) == days.code(begun.date())
