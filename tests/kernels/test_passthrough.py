"""The pass-through kernel beyond the five questions: what it keeps, and that it copies nothing."""

import pyarrow as pa
import pytest

from penstock.errors import BadOption, StateDamaged
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.passthrough import PassThrough
from penstock.testing import Host

SCHEMA = pa.schema([("n", pa.int64())])


def rows(count):
    return pa.record_batch({"n": pa.array(range(count), pa.int64())})


def kept(host):
    blobs = [host.store.chunks[name] for name in sorted(host.store.chunks)]
    return [pa.ipc.open_stream(blob).read_all().num_rows for blob in blobs]


def test_rows_leave_as_the_buffers_that_came():
    batch = rows(10)
    [emission] = PassThrough(SCHEMA, keep=5).step(Batch([Portion(0, batch)]), now=0)
    assert emission.rows is batch


@pytest.mark.parametrize("restart", [False, True])
def test_the_newest_portions_are_kept(restart):
    host = Host(lambda: PassThrough(SCHEMA, keep=5), restart_every_step=restart)
    expected = [
        ([2], [2]),
        ([2, 0], [2, 2]),
        ([2], [2, 2, 2]),
        ([2], [2, 2, 2]),
        ([9], [9]),
        ([1, 1], [9, 1, 1]),
        ([3], [1, 1, 3]),
    ]
    for portions, want in expected:
        host.step([rows(count) for count in portions])
        assert kept(host) == want
    assert host.kernel.rows == 22


def test_memory_is_what_is_kept():
    host = Host(lambda: PassThrough(SCHEMA, keep=1_000))
    for _ in range(5):
        host.step(rows(1_000))
    assert 8_000 < host.peak < 9_000


def test_metrics_are_of_the_last_step():
    host = Host(lambda: PassThrough(SCHEMA))
    host.run([rows(5), [rows(2), rows(1)]])
    assert host.kernel.metrics() == {"rows_in": 3, "rows_out": 3}


def test_a_negative_number_of_rows_is_refused():
    with pytest.raises(BadOption, match="keep=-1"):
        PassThrough(SCHEMA, keep=-1)


@pytest.mark.parametrize(
    ("head", "chunks"),
    [(b"", {}), (b"[]", {}), (b'{"rows": 1}', {}), (b'{"rows": 1, "next": 1}', {"0": pa.py_buffer(b"garbage")})],
)
def test_damaged_state_is_refused(head, chunks):
    with pytest.raises(StateDamaged, match="cannot be read"):
        PassThrough(SCHEMA, keep=1).restore(head, chunks)
