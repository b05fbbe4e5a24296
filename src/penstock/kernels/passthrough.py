"""A kernel that does nothing to its rows: the floor under every measurement of a host."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.errors import BadOption, StateDamaged
from penstock.kernels.contract import RESULTS, Batch, Changes, ChunkLog, Emission, Kernel, Metric


class PassThrough(Kernel):
    """Emit every row unchanged, and keep as much state as asked for.

    Guarantees
        Rows leave in the order in which they came, as the very buffers that came in.
        `rows` counts every row ever taken in, across any number of restores.
        With `keep`, the newest portions with at least `keep` rows between them are live chunks (or all rows, while
        fewer have come); the oldest of them is needed to reach `keep`.
    State and cost
        One chunk for each kept portion, serialised once when it arrives and held until newer ones make it superfluous:
        never more than `keep` rows and one portion. Without `keep` nothing is held and a step costs one call a portion.

    >>> import pyarrow as pa
    >>> from penstock.testing import Host
    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> host = Host(lambda: PassThrough(rows.schema, keep=2))
    >>> host.run([rows])["results"].to_pydict()
    {'n': [1, 2, 3]}
    """

    reports = (
        Metric("rows_in", help="rows taken in by the last step"),
        Metric("rows_out", help="rows emitted by the last step"),
    )

    def __init__(self, schema: pa.Schema, keep: int = 0) -> None:
        if keep < 0:
            raise BadOption(
                f"keep={keep} is not a number of rows.", do="Give keep=0 for no state, or how many rows to keep."
            )
        self.channels: Mapping[str, pa.Schema] = {RESULTS: schema}
        self.keep = keep
        self.rows = 0
        self._next = 0
        self._kept: OrderedDict[str, tuple[int, pa.Buffer]] = OrderedDict()
        self._kept_rows = 0
        self._held = 0
        self._peak = 0
        self._log = ChunkLog()
        self._last = 0

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Hand every portion on as it is."""
        self._last = 0
        for _, rows in batch:
            self._last += rows.num_rows
            self.rows += rows.num_rows
            if self.keep and rows.num_rows:
                self._retain(rows)
            yield Emission(RESULTS, rows)

    def memory(self) -> int:
        """Bytes of the kept chunks, at their most since the last `changes()`."""
        return self._peak

    def changes(self) -> Changes:
        """Portions that came to be kept, and those that newer ones replaced."""
        self._peak = self._held
        return self._log.take()

    def head(self) -> bytes:
        """The number of rows so far, and of the next chunk."""
        return json.dumps({"rows": self.rows, "next": self._next}).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Count on from `head`, with `chunks` as the kept portions."""
        try:
            stored = json.loads(head)
            self.rows, self._next = int(stored["rows"]), int(stored["next"])
            # Names are numbers of one width: their order is the order of arrival.
            for name in sorted(chunks):
                rows = sum(part.num_rows for part in pa.ipc.open_stream(chunks[name]))
                self._hold(name, rows, chunks[name])
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise StateDamaged(
                "The stored state of a pass-through kernel cannot be read.",
                why=str(error),
                do="Restore the checkpoint from a copy, or start with a new one.",
            ) from error
        self._peak = self._held

    def metrics(self) -> Mapping[str, float]:
        """Rows of the last step; as many leave as come."""
        return {"rows_in": self._last, "rows_out": self._last}

    def _retain(self, rows: pa.RecordBatch) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        name, blob = f"{self._next:012d}", sink.getvalue()
        self._next += 1
        # Let go of the old before taking hold of the new: what is superfluous is not held beside it.
        while self._kept and self._kept_rows - self._oldest_rows() + rows.num_rows >= self.keep:
            self._drop_oldest()
        self._hold(name, rows.num_rows, blob)
        self._log.add(name, blob)

    def _oldest_rows(self) -> int:
        return next(iter(self._kept.values()))[0]

    def _hold(self, name: str, rows: int, blob: pa.Buffer) -> None:
        self._kept[name] = (rows, blob)
        self._kept_rows += rows
        self._held += blob.size
        self._peak = max(self._peak, self._held)

    def _drop_oldest(self) -> None:
        name, (rows, blob) = self._kept.popitem(last=False)
        self._kept_rows -= rows
        self._held -= blob.size
        self._log.drop(name)
