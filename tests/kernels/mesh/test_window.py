"""The window: packets come and leave in order, rows are found by their number, bytes are counted whatever the cut."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.mesh.condition import MET, Equal
from penstock.kernels.mesh.window import PIECE_ROWS, Packet, Window, gather_pieces
from penstock.testing import assert_same_rows
from penstock.testing.strategies import cuts, table_schema, tables

SCHEMA = table_schema("string")


def window_of(packets, flags=False):
    window = Window(Equal(("k",)), flags)
    for packet in packets:
        window.admit(packet)
    return window


def weight(window, packet):
    return sum(window.cost(piece) for piece in packet.pieces)


@st.composite
def packets(draw):
    """One to four packets of one to four pieces, each to leave one tick after the one before."""
    made, first = [], 0
    for number in range(draw(st.integers(1, 4))):
        pieces = tuple(p for p in draw(cuts(draw(tables("string", min_rows=1, max_rows=12)))) if p.num_rows)
        made.append(Packet(f"p{number}", first, pieces, until=number + 1))
        first += made[-1].rows
    return made


@given(packets(), st.integers(0, 4), st.data())
def test_rows_are_found_by_number_also_after_others_expired(made, clock, data):
    window = window_of(made)
    everything = pa.Table.from_batches([piece for packet in made for piece in packet.pieces])
    assert window.organised
    gone = window.due(clock)
    window.expire(clock)
    assert [packet.name for packet in gone] == [packet.name for packet in made if packet.until <= clock]
    assert window.rows == sum(packet.rows for packet in made if packet.until > clock)
    if not window:
        return
    assert window.first_live == sum(packet.rows for packet in gone)
    wanted = data.draw(st.lists(st.integers(window.first_live, everything.num_rows - 1), min_size=1, max_size=20))
    taken = window.take(np.array(wanted, np.int64))
    assert_same_rows(pa.Table.from_batches([taken]), everything.take(wanted), ordered=True)


@given(packets())
def test_bytes_return_to_nothing_when_all_have_left(made):
    window = window_of(made)
    assert window.nbytes == sum(weight(window, packet) for packet in made)
    for clock in range(1, len(made) + 1):
        window.expire(clock)
        assert window.nbytes == sum(weight(window, packet) for packet in made if packet.until > clock)
    assert not window
    assert window.nbytes == 0


@given(tables("string", max_rows=25), st.data())
def test_cost_is_the_same_however_rows_were_cut(rows, data):
    one, other = (data.draw(cuts(rows)) for _ in range(2))
    cost = window_of([]).cost
    assert sum(map(cost, one)) == sum(map(cost, other))


@given(st.lists(st.integers(1, PIECE_ROWS), max_size=12))
def test_gathered_pieces_have_the_same_rows_in_few_pieces(sizes):
    ends = np.cumsum([0, *sizes])
    whole = pa.record_batch({"n": pa.array(np.arange(ends[-1]))})
    portions = [whole.slice(start, size) for start, size in zip(ends[:-1].tolist(), sizes, strict=True)]
    pieces = gather_pieces(list(portions), PIECE_ROWS, float("inf"))
    numbers = [piece.column("n").to_numpy() for piece in pieces]
    assert np.array_equal(np.concatenate([*numbers, np.empty(0, np.int64)]), np.arange(ends[-1]))
    assert all(piece.num_rows <= PIECE_ROWS for piece in pieces)
    # Two neighbours that would fit together were put together.
    assert all(a.num_rows + b.num_rows > PIECE_ROWS for a, b in pairwise(pieces))


@given(packets(), packets(), st.integers(0, 4), st.data())
def test_flags_stay_with_their_rows_when_others_come_and_go(made, later, clock, data):
    window = window_of(made, flags=True)
    assert window.organised
    count = sum(packet.rows for packet in made)
    marked = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20))
    assert sorted(window.flag(np.array(marked, np.int64), MET)) == sorted(set(marked))
    assert not len(window.flag(np.array(marked, np.int64), MET)), "they have it already"
    window.expire(clock)
    for number, packet in enumerate(later):
        window.admit(Packet(f"q{number}", count, packet.pieces, until=9))
        count += packet.rows
    assert window.organised
    found = [packet.first + int(row) for packet in window.packets for row in np.flatnonzero(packet.flags)]
    gone = sum(packet.rows for packet in made if packet.until <= clock)
    assert found == sorted({row for row in marked if row >= gone})
