"""A kernel whose results are answers to several queries, each with rows and columns of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.kernels.contract import RESULTS, Batch, Changes, Emission, Kernel


class Answers(Protocol):
    """What one query makes of results. `state` is what it must remember from batch to batch: mostly nothing."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Its rows among these results."""

    def state(self) -> bytes:
        """What it remembers."""

    def restore(self, state: bytes) -> None:
        """Remember it again."""


class Answering(Kernel):
    """Another kernel, whose results leave by one channel for each query, as that query wants them.

    `reads` says which channel of the inner kernel a query's answer is made of, where it is not `results`.

    Guarantees
        What a channel has is what its query makes of every row of results, in their order: selections stand above the
        join, so that all queries share it (Hammad et al., "Scheduling for Shared Window Joins over Data Streams",
        §2.1). All other channels are the inner kernel's.
    State and cost
        The inner kernel's, and what answers remember. A batch of results is filtered once for each query.

    >>> import pyarrow as pa
    >>> from penstock.kernels.passthrough import PassThrough
    >>> from penstock.testing import Host
    >>> class Large:
    ...     schema = pa.schema([("n", pa.int64())])
    ...     __call__ = lambda self, rows: rows.filter(pa.compute.greater(rows["n"], 1))
    ...     state = lambda self: b""
    ...     restore = lambda self, state: None
    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> host = Host(lambda: Answering(PassThrough(rows.schema), {"large": Large()}))
    >>> host.run([rows])["large"].to_pydict()
    {'n': [2, 3]}
    """

    def __init__(self, inner: Kernel, answers: Mapping[str, Answers], reads: Mapping[str, str] | None = None) -> None:
        self.inner = inner
        self.answers = dict(answers)
        #: Which answers are made of the rows of each channel.
        self._readers: dict[str, list[str]] = {}
        for name in self.answers:
            self._readers.setdefault((reads or {}).get(name, RESULTS), []).append(name)
        own = {name: schema for name, schema in inner.channels.items() if name not in self._readers}
        self.channels: Mapping[str, pa.Schema] = {**{n: one.schema for n, one in self.answers.items()}, **own}
        self.reports = inner.reports

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """As the inner kernel, with answers for results."""
        return self._answered(self.inner.step(batch, now))

    def tick(self, now: int, watermark: int | None = None) -> Iterator[Emission]:
        """As the inner kernel."""
        return self._answered(self.inner.tick(now, watermark))

    def _answered(self, emissions: Iterator[Emission]) -> Iterator[Emission]:
        for emission in emissions:
            if emission.channel not in self._readers:
                yield emission
                continue
            for name in self._readers[emission.channel]:
                rows = self.answers[name](emission.rows)
                if rows.num_rows:
                    yield Emission(name, rows)

    def pending(self) -> bool:
        """As the inner kernel."""
        return self.inner.pending()

    def memory(self) -> int:
        """What the inner kernel holds; answers hold a few numbers."""
        return self.inner.memory()

    def changes(self) -> Changes:
        """The inner kernel's."""
        return self.inner.changes()

    def head(self) -> bytes:
        """What answers remember, then the inner kernel's head."""
        states = {name: state.hex() for name, answer in self.answers.items() if (state := answer.state())}
        own = json.dumps(states).encode()
        return len(own).to_bytes(4, "big") + own + self.inner.head()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Both."""
        length = int.from_bytes(head[:4], "big")
        try:
            states = json.loads(head[4 : 4 + length])
            for name, answer in self.answers.items():
                answer.restore(bytes.fromhex(states.get(name, "")))
        except (ValueError, TypeError, AttributeError) as error:
            raise StateDamaged(
                "What answers remembered cannot be read.",
                why=str(error),
                do="Restore the checkpoint from a copy, or start with a new one.",
            ) from error
        self.inner.restore(head[4 + length :], chunks)

    def metrics(self) -> Mapping[str, float]:
        """The inner kernel's."""
        return self.inner.metrics()
