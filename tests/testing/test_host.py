"""The host runs a kernel as Spark does, and a broken promise of the contract is a `KernelFault` at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import KernelFault
from penstock.kernels.contract import RESULTS, Batch, Changes, Emission, Kernel, Metric, Portion
from penstock.kernels.passthrough import PassThrough
from penstock.testing import EventTime, Host
from penstock.testing.event_time import repeated

ROWS = pa.table({"n": [1, 2, 3]})
NOTHING = Changes({}, ())


class Sound(Kernel):
    """Emits what comes; each test breaks one thing about it."""

    channels: ClassVar = {RESULTS: ROWS.schema}
    reports: ClassVar = (Metric("seen"),)

    def __init__(self):
        self.seen = 0
        self.calls = []

    def step(self, batch, now):
        self.calls.append((batch.watermark, now))
        for _, rows in batch:
            self.seen += rows.num_rows
            yield Emission(RESULTS, rows)

    def memory(self):
        return 10

    def changes(self):
        return NOTHING

    def head(self):
        return str(self.seen).encode()

    def restore(self, head, chunks):
        self.seen = int(head)

    def metrics(self):
        return {"seen": self.seen}


def broken(**parts):
    """A class like `Sound` in which these parts are others."""
    return type("Broken", (Sound,), parts)


def emitting(*emissions):
    def step(self, batch, now):
        list(batch)
        yield from emissions

    return step


def changing(*per_step):
    """Changes as given, one after the other."""
    steps = iter([*per_step, NOTHING])
    return lambda self: next(steps)


def test_rows_may_come_in_any_form():
    batch = ROWS.to_batches()[0]
    for form in (ROWS, batch, Portion(0, batch), [batch], [Portion(0, batch)], Batch([Portion(0, batch)]), [ROWS]):
        assert Host(Sound).run([form])[RESULTS] == ROWS


def test_every_declared_channel_has_a_table():
    kernel = broken(channels={RESULTS: ROWS.schema, "late": ROWS.schema})
    assert Host(kernel).run([ROWS])["late"].num_rows == 0


def test_emitted_rows_are_counted():
    host = Host(Sound)
    host.run([ROWS, ROWS])
    assert host.rows == {RESULTS: 6}
    assert host.steps == 2


def test_a_crash_leads_to_a_restore_from_the_store():
    host = Host(Sound)
    host.step(ROWS)
    first = host.kernel
    host.crash()
    host.step(ROWS)
    assert host.kernel is not first
    assert host.kernel.seen == 6
    assert host.restores == 1


def test_restart_every_step():
    host = Host(Sound, restart_every_step=True)
    host.run([ROWS] * 4)
    assert host.restores == 4
    assert host.kernel.seen == 12


def test_a_step_that_raises_leaves_everything_as_it_was():
    def step(self, batch, now):
        yield from Sound.step(self, batch, now)
        if self.seen > 3:
            raise OSError("disk on fire")

    host = Host(broken(step=step))
    host.step(ROWS)
    before = host.store
    failed = host.kernel
    with pytest.raises(OSError, match="on fire"):
        host.step(ROWS)
    assert host.store is before
    assert host.rows == {RESULTS: 3}
    assert host.kernel is not failed
    assert host.kernel.seen == 3


def test_an_abandoned_step_leaves_everything_as_it_was():
    host = Host(Sound)
    lost = host.abandon([ROWS, ROWS], after=1)
    assert [emission.rows.num_rows for emission in lost] == [3]
    assert host.store.head is None
    assert host.run([ROWS])[RESULTS] == ROWS


def test_the_clock_is_an_argument():
    host = Host(Sound, now=50, pace=-10)
    host.run([ROWS] * 3)
    assert [now for _, now in host.kernel.calls] == [50, 40, 30]


def test_chunks_are_stored_and_dropped():
    kernel = broken(
        changes=changing(Changes({"a": pa.py_buffer(b"1")}, ()), Changes({"b": pa.py_buffer(b"2")}, ("a",)))
    )
    host = Host(kernel)
    host.step(ROWS)
    assert host.store.chunks == {"a": b"1"}
    host.step(ROWS)
    assert host.store.chunks == {"b": b"2"}


def test_a_finished_chunk_may_have_its_name_used_again():
    a = {"a": pa.py_buffer(b"1")}
    host = Host(broken(changes=changing(Changes(a, ()), Changes({}, ("a",)), Changes(a, ()))))
    host.run([ROWS] * 3)
    assert host.store.chunks == {"a": b"1"}


def one_of(*changes):
    return {"changes": changing(*changes)}


A = {"a": pa.py_buffer(b"1")}
OTHER = pa.record_batch({"n": pa.array([1], pa.int32())})
TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
ODD = pa.RecordBatch.from_arrays([TEXT], ["no UTF-8"])


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("wrote the chunk 'a' again", one_of(Changes(A, ()), Changes(A, ()))),
        ("wrote the chunk 'a' again", one_of(Changes(A, ()), Changes(A, ("a",)))),
        ("dropped a chunk that is not live: 'a'", one_of(Changes({}, ("a",)))),
        ("dropped a chunk that is not live: 'a'", one_of(Changes(A, ()), Changes({}, ("a", "a")))),
        ("is a bytes, not a buffer", one_of(Changes({"a": b"1"}, ()))),
        ("more than 65,536", {"head": lambda self: bytes(70_000)}),
        ("is a str", {"head": lambda self: "text"}),
        ("101 bytes, 1 more than its budget of 100", {"memory": lambda self: 101}),
        ("holds -1 bytes", {"memory": lambda self: -1}),
        ("on the channel 'lost'", {"step": emitting(Emission("lost", OTHER))}),
        ("Emitted: n int32", {"step": emitting(Emission(RESULTS, OTHER))}),
        ("emitted a Table", {"step": emitting(Emission(RESULTS, ROWS))}),
        ("not sound", {"step": emitting(Emission(RESULTS, ODD)), "channels": {RESULTS: ODD.schema}}),
        ("Reported: sean", {"metrics": lambda self: {"sean": 1}}),
        ("is not a number: None", {"metrics": lambda self: {"seen": None}}),
        ("cannot be told apart", {"reports": (Metric("x"), Metric("x"))}),
        ("cannot be told apart or combined: x", {"reports": (Metric("x", combine="mean"),)}),
        ("declares no channel", {"channels": {}}),
        ("left input unread", {"step": lambda self, batch, now: iter(())}),
        ("pending right after a tick", {"pending": lambda self: True}),
    ],
)
def test_broken_promise(said, parts):
    host = Host(broken(**parts), budget=100)
    with pytest.raises(KernelFault, match=said):
        host.run([ROWS, ROWS])


def test_a_chunk_that_changes_after_it_was_handed_out():
    numbers = np.zeros(4, np.int64)

    def step(self, batch, now):
        numbers[0] += 1
        yield from Sound.step(self, batch, now)

    host = Host(broken(step=step, changes=changing(Changes({"a": pa.py_buffer(numbers)}, ()))))
    with pytest.raises(KernelFault, match="changed after it was handed out"):
        host.run([ROWS, ROWS])


def test_input_arrives_in_buffers_of_its_own():
    arrived = []

    def step(self, batch, now):
        for _, rows in batch:
            arrived.append(rows)
            yield Emission(RESULTS, rows)

    large = pa.table({"n": list(range(1_000))})
    Host(broken(step=step)).run([large.slice(500, 2)])
    assert arrived[0].column(0).buffers()[1].size < 1_000


def test_the_watermark_is_of_earlier_batches_and_of_the_slower_side():
    def moments(*at):
        return pa.record_batch({"n": pa.array(at, pa.timestamp("us"))})

    kernel = broken(channels={RESULTS: moments().schema})
    host = Host(kernel, event_time=EventTime(("n", "n"), lateness=5))
    left, right = Portion(0, moments(100, 70)), Portion(1, moments(40, None))
    changes = Portion(2, moments(1_000))  # a third input, which has no event time
    for batch in ([left], [right], [Portion(1, moments(90)), changes], []):
        host.step(batch)
    assert [watermark for watermark, _ in host.kernel.calls] == [None, None, 35, 85]
    host.step(Batch([left], watermark=7))
    assert host.kernel.calls[-1][0] == 7


def test_a_stream_that_is_repeated_goes_on_in_time():
    def moments(*at):
        return pa.record_batch({"n": pa.array(at, pa.timestamp("us", "UTC"))})

    sides = {0: moments(5, 3), 1: moments(None, 9), 2: moments(1)}
    made = repeated(sides, EventTime(("n", "n")), times=3)
    assert {side: rows["n"].cast(pa.int64()).to_pylist() for side, rows in made.items()} == {
        0: [5, 3, 12, 10, 19, 17],
        1: [None, 9, None, 16, None, 23],
        2: [1, 1, 1],
    }
    assert repeated({0: ROWS.to_batches()[0]}, None, times=2)[0].num_rows == 2 * ROWS.num_rows


def test_pass_through_needs_no_state():
    host = Host(lambda: PassThrough(ROWS.schema))
    host.run([ROWS, ROWS])
    assert host.store.chunks == {}
    assert host.peak == 0
