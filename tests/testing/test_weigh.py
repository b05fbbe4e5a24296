"""What can be reached from an object is found, once, and nothing else is."""

import collections

import numpy as np
import pyarrow as pa
import pytest

from penstock.testing.weigh import Scale

MEGABYTE = 1 << 20
BYTES = pa.py_buffer(bytes(MEGABYTE))
ARRAY = np.zeros(MEGABYTE, np.uint8)
NUMBERS = pa.array(np.zeros(MEGABYTE // 8, np.int64))


class Holder:
    def __init__(self, *things):
        self.things = things


class Slotted:
    __slots__ = ("thing",)

    def __init__(self, thing):
        self.thing = thing


def through_ipc():
    sink = pa.BufferOutputStream()
    half = NUMBERS.slice(0, MEGABYTE // 16)
    batch = pa.record_batch({"a": half, "b": half})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def generator(thing):
    yield len(thing)
    yield thing


def started(thing):
    running = generator(thing)
    next(running)
    return running


@pytest.mark.parametrize(
    "thing",
    [
        BYTES,
        BYTES.slice(10, 10),
        ARRAY,
        ARRAY[5:10],
        ARRAY.reshape(2, -1).T,
        NUMBERS,
        NUMBERS.slice(3, 1),
        NUMBERS.to_numpy()[:4],
        np.frombuffer(BYTES, np.uint8, 7),
        pa.chunked_array([NUMBERS, NUMBERS]),
        pa.table({"a": NUMBERS, "b": NUMBERS}),
        through_ipc().column("a"),
        [BYTES, BYTES, {"same": BYTES}],
        collections.OrderedDict(a=(1, ARRAY)),
        collections.deque([ARRAY]),
        Holder(Holder(ARRAY), [ARRAY]),
        Slotted(ARRAY),
        bytes(MEGABYTE),
        bytearray(MEGABYTE),
        memoryview(ARRAY)[:5],
        np.array([ARRAY, None], dtype=object),
        Holder(ARRAY).__init__,
        started(ARRAY),
        pa.DictionaryArray.from_arrays(pa.array([0]), NUMBERS),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_a_megabyte_weighs_a_megabyte(thing):
    assert Scale().weigh(Holder(thing)) == pytest.approx(MEGABYTE, rel=0.15)


def test_what_a_function_closes_over_counts_and_its_module_does_not():
    held = bytes(MEGABYTE)
    assert Scale().weigh(lambda: held) == pytest.approx(MEGABYTE, rel=0.01)
    assert Scale().weigh(through_ipc) < 1_000
    assert Scale().weigh(Holder, pa) == 0


def test_many_pieces_weigh_the_sum_of_them():
    pieces = [pa.record_batch({"a": pa.array(np.zeros(1_000, np.int64))}) for _ in range(100)]
    assert Scale().weigh(Holder(pieces)) == pytest.approx(800_000, rel=0.15)


def test_many_small_objects_weigh_something():
    assert Scale().weigh(Holder([float(i) for i in range(10_000)])) > 24 * 10_000


def test_what_is_lent_does_not_count():
    shared = Holder(BYTES, NUMBERS)
    scale = Scale([shared])
    assert scale.weigh(Holder(shared, BYTES.slice(5), pa.table({"a": NUMBERS}))) < 2_000
    assert scale.weigh(Holder(shared, ARRAY)) == pytest.approx(MEGABYTE, rel=0.01)


def test_mapped_files_do_not_count(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(MEGABYTE))
    assert Scale().weigh(Holder(np.memmap(path, np.uint8, "r"), np.memmap(path, np.uint8, "r")[5:])) < 2_000
