"""The cost model of a mesh join: equations (1)-(4) of 000 §3.2, corrected, with every factor measured.

=========== ==========================================================================================================
``R``, ``S`` the table on disk, the stream
``n_R``     rows of R
``v_R``     bytes of a row of R
``v_P``     bytes of a page of R: the unit in which buffers are counted
``N_R``     pages of R, ``ceil(n_R · v_R / v_P)``
``v_S``     bytes of a row of S
``b``       pages of R that are read at once, into the disk buffer
``w``       rows of S that are admitted with every b pages
``k``       reads in a cycle, ``ceil(N_R / b)``
``W``       rows that wait in H, ``w · k``
``f``       bytes of H for each byte of a waiting row ("fudge factor")
``ptr``     bytes of Q, or of an index, for each waiting row
``m``       results of a row of S over its whole stay, as measured
``φ``       false candidates of a probe: hashes that seem to match until the keys are compared
``c_IO(b)`` seconds to read b pages
``c_E``     seconds to expire a row of S
``c_S``     seconds to take a row from the stream
``c_A(W)``  seconds to put a row into H and Q, where W rows wait
``c_H(W)``  seconds to probe H, with W rows in it, with a row of R
``c_P(b)``  seconds to get at the rows of b pages among whose keys something matched, once for each slice of results
``c_G(W)``  seconds to get at the W waiting rows for a slice of results
``c_O(W)``  seconds to build one result, where W rows wait
``c_MB``    seconds that Spark takes for a micro-batch whatever is in it, shared by its ``B`` rows
``c_loop``  seconds of one iteration: read b pages, admit w rows, probe
``μ``, ``λ`` the service rate and the arrival rate, in rows a second
=========== ==========================================================================================================

(1)  ``M = buffer(b) + fixed + s · w · v_S + W · ptr + W · f · v_S``.
     In the papers ``buffer(b) = b · v_P``, ``fixed = 0`` and ``s = 1`` (rows are copied into a stream buffer first).
(2)  ``c_loop = c_IO(b) + w · (c_E + c_S + c_A) + (n_R / k) · c_H + opened · (c_P + c_G) + w · m · c_O + w · c_MB / B``
(3)  ``μ = w / c_loop``
(4)  ``b / w`` reads *a row*, ``b / c_loop`` reads *a second*.

Where this differs from the papers:

* Table 1 of 000 swaps the two names of (4).
* (2) charges ``σ · c_O`` for every probe: one result at the most. Here W waiting rows with m results each give
  ``m · W`` results a cycle, or ``m · W / n_R`` a probe, which may be more than one.
* ``N_R`` need not be a multiple of b: the last read of a cycle is short. (2) is the mean over the k reads of a cycle.
* Keys are read before rows, so a page without a match costs no more than its keys: the terms with ``c_P``, ``c_G``.
* ``c_A``, ``c_H``, ``c_G`` and ``c_O`` depend on W, because processors have caches.
* The overhead of micro-batches.
"""

# The fields are the paper's letters.
# ruff: noqa: N815

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.models.curve import Curve, Floats


class Memory(NamedTuple):
    """Where the bytes of equation (1) are."""

    disk_buffer: float
    fixed: float
    stream_buffer: float
    queue: float
    hash_table: float

    @property
    def total(self) -> float:
        """M."""
        return sum(self)


class Seconds(NamedTuple):
    """Where the time of one iteration goes, term by term of equation (2); arrays where w or b was one."""

    read: Any
    expire: Any
    fetch: Any
    append: Any
    probe: Any
    open: Any
    result: Any
    batch: Any

    @property
    def total(self) -> Any:
        """c_loop."""
        return sum(self)


@dataclass(frozen=True)
class Coefficients:
    """What the model needs to know of a table, a stream and a machine. The letters are those of the module's text.

    Guarantees
        `loads(dumps())` is the same: `test_coefficients_survive_json`. More waiting rows never make an iteration
        cheaper: `test_more_rows_never_cost_less`.

    The table and stream of 001, with costs that are made up:

    >>> costs = dict(c_IO=Curve.line(40e-6, 8e-3), c_E=1e-6, c_S=1e-6, c_A=2e-6, c_H=1e-6, c_O=1e-6)
    >>> c = Coefficients.of_papers(n_R=3_500_000, v_R=120, v_P=4096, v_S=20, **costs)
    >>> c.N_R, int(c.iterations(232))
    (102540, 442)
    >>> w = c.most_rows(20 << 20, 232)
    >>> round(float(c.memory(w, 232).total) / 2**20, 1), round(float(c.rate(w, 232)))
    (20.0, 16461)
    """

    n_R: int
    v_R: float
    v_P: float
    v_S: float
    ptr: float
    f: float
    buffer: Curve
    c_IO: Curve
    c_A: Curve
    c_H: Curve
    c_O: Curve
    c_E: float = 0.0
    c_S: float = 0.0
    c_P: Curve = Curve.constant(0.0)  # noqa: RUF009 — a curve is frozen
    c_G: Curve = Curve.constant(0.0)  # noqa: RUF009
    m: float = 1.0
    false_candidates: float = 0.0
    fixed: float = 0.0
    #: Copies of the w admitted rows beside H; 0 where they go into it as they come.
    stream_copies: float = 1.0
    #: Results that are built at once; those of a buffer that has more open its rows again.
    slice_rows: float = math.inf
    c_MB: float = 0.0
    #: B; without it no micro-batch is charged.
    batch_rows: float = math.inf

    @classmethod
    def of_papers(
        cls, *, n_R: int, v_R: float, v_P: float, v_S: float, c_IO: Curve, c_E: float, c_S: float, c_A: float,
        c_H: float, c_O: float, ptr: float = 4.0, f: float = 4.8, m: float = 1.0,
    ) -> Coefficients:  # fmt: skip
        """As the papers have it: constant costs, a buffer of b whole pages, a pointer of 4 bytes, fudge factor 4.8."""
        one = Curve.constant
        return cls(
            n_R, v_R, v_P, v_S, ptr, f, Curve.line(v_P), c_IO, one(c_A), one(c_H), one(c_O), c_E=c_E, c_S=c_S, m=m
        )

    # -- the table in pages --------------------------------------------------------------------------------------

    @property
    def N_R(self) -> int:  # noqa: N802 — the paper's letter
        """Pages of the table."""
        return max(math.ceil(self.n_R * self.v_R / self.v_P), 1)

    def iterations(self, b: npt.ArrayLike) -> Any:
        """k: reads in a cycle, the last of which may be short."""
        return np.ceil(self.N_R / np.asarray(b, np.float64)).astype(np.int64)[()]

    # -- (1) memory ----------------------------------------------------------------------------------------------

    def memory(self, w: float, b: float) -> Memory:
        """Equation (1)."""
        window = w * int(self.iterations(b))
        return Memory(
            float(self.buffer(b)),
            self.fixed,
            self.stream_copies * w * self.v_S,
            window * self.ptr,
            window * self.f * self.v_S,
        )

    def row_bytes(self, b: npt.ArrayLike) -> Any:
        """What one more admitted row an iteration takes up: the denominator of 001's equation (3)."""
        return self.stream_copies * self.v_S + self.iterations(b) * (self.ptr + self.f * self.v_S)

    def most_rows(self, M: float, b: npt.ArrayLike) -> Any:
        """The largest w that fits M beside a buffer of b pages, 0 if none does: 001's equation (3)."""
        room = M - self.buffer(b) - self.fixed
        return np.maximum(np.floor(room / self.row_bytes(b)), 0).astype(np.int64)[()]

    # -- (2) time ------------------------------------------------------------------------------------------------

    def cycle(self, rows: npt.ArrayLike, b: npt.ArrayLike) -> Seconds:
        """Seconds of one pass over the table that `rows` waiting rows share, with b pages read at once."""
        W, b = np.asarray(rows, np.float64), np.asarray(b, np.float64)
        k = np.ceil(self.N_R / b)
        last = self.N_R - (k - 1) * b
        read = (k - 1) * self.c_IO(b) + self.c_IO(last)
        opened = (k - 1) * self._opened(W, b) + self._opened(W, last)
        batch = W * (self.c_MB / self.batch_rows)
        return Seconds(
            read, W * self.c_E, W * self.c_S, W * self.c_A(W), self.n_R * self.c_H(W), opened, W * self.m * self.c_O(W),
            batch,
        )  # fmt: skip

    def loop(self, w: npt.ArrayLike, b: npt.ArrayLike) -> Seconds:
        """Equation (2): the mean iteration of a cycle."""
        k = self.iterations(b)
        return Seconds(*(term / k for term in self.cycle(np.asarray(w, np.float64) * k, b)))

    def _opened(self, W: Floats, b: Floats) -> Any:
        """Seconds to get at the rows of one buffer: it has m·W·b/N_R results on average, by chance some or none."""
        results = (self.m * W + self.false_candidates * self.n_R) * b / self.N_R
        # Some buffers have more than the mean: a few slices more than it would need.
        slices = np.maximum(np.ceil((results + 3 * np.sqrt(results)) / self.slice_rows), 1.0)
        return -np.expm1(-results) * slices * (self.c_P(b) + self.c_G(W))

    # -- (3) rate, (4) reads -------------------------------------------------------------------------------------

    def rate(self, w: npt.ArrayLike, b: npt.ArrayLike) -> Any:
        """Equation (3): rows of the stream served in a second, when the window is always full."""
        w = np.asarray(w, np.float64)
        return np.divide(w, self.loop(w, b).total)[()]

    def reads_per_row(self, w: float, b: float) -> float:
        """Equation (4), first part: pages read for each row of the stream."""
        return b / w

    def reads_per_second(self, w: float, b: float) -> float:
        """Equation (4), second part: pages read in a second."""
        return b / float(self.loop(w, b).total)

    def batch_seconds(self, w: float, b: float, rows: float) -> float:
        """Seconds of a micro-batch of this many rows: full windows, a last one that is not, and Spark's own share."""
        free = replace(self, c_MB=0.0, batch_rows=math.inf)
        window = w * int(self.iterations(b))
        full, rest = divmod(rows, window)
        spent = full * float(free.cycle(window, b).total) + (float(free.cycle(rest, b).total) if rest else 0.0)
        return self.c_MB + spent

    # -- other settings ------------------------------------------------------------------------------------------

    def with_batches(self, rows: float, overhead: float) -> Coefficients:
        """The same under micro-batches of this many rows, each with this many seconds of overhead."""
        return replace(self, batch_rows=rows, c_MB=overhead)

    def divided(self, slots: int, by: Literal["key", "rows", "pages"]) -> Coefficients:
        """One slot's part. By key or rows it serves its own rows, so rates add up; by pages it serves every row.

        By rows it scans the whole table, otherwise its own part.
        """
        m = self.m / slots if by == "pages" else self.m
        batch = self.batch_rows if by == "pages" else self.batch_rows / slots
        return replace(self, n_R=self.n_R if by == "rows" else math.ceil(self.n_R / slots), m=m, batch_rows=batch)

    def dumps(self) -> str:
        """As JSON."""
        return json.dumps({name: _plain(value) for name, value in asdict(self).items()}, sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Coefficients:
        """From JSON; raises `ValueError` where it is not what `dumps` wrote."""
        found = json.loads(text)
        names = {field.name for field in fields(cls)}
        if not isinstance(found, dict) or set(found) != names:
            raise ValueError("These are not the coefficients of a mesh join.")
        return cls(**{name: _rich(value) for name, value in found.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {"x": list(value["x"]), "y": list(value["y"])}
    return None if value == math.inf else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        return Curve(tuple(map(float, value["x"])), tuple(map(float, value["y"])))
    return math.inf if value is None else value
