"""What the demonstration joins: a products table on disk, and orders that arrive as files while the query runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: One page of the plain table; small enough that a few of them fit into a small budget.
ROW_GROUP = 1 << 16
_FILE_ROWS = 1 << 19
#: The orders as Spark reads them.
ORDERS = "order_id long, product_id long, customer_id long, quantity int, ordered_at timestamp"
#: How many of the orders name a product that is not in the table, and how many none at all.
_UNKNOWN, _NULL = 0.05, 0.01

# fmt: off
_MAKERS = ["Alder", "Birch", "Cedar", "Delta", "Ember", "Fjord", "Grove", "Harbor", "Indigo", "Juniper", "Kestrel"]
_KINDS = ["kettle", "lamp", "chair", "drill", "jacket", "tent", "bicycle", "speaker", "notebook", "blender", "rucksack"]
_LOOKS = ["plain", "folding", "copper", "silent", "waterproof", "wireless", "solid", "spare", "heavy", "light", "tall"]
# fmt: on


def write_products(place: Path, rows: int, seed: int) -> Iterator[int]:
    """Write the table, ids in random order, twelve columns; yields how many rows are written so far."""
    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    ids = rng.permutation(rows)
    texts = _texts(rng)
    for number, start in enumerate(range(0, rows, _FILE_ROWS)):
        chosen = ids[start : start + _FILE_ROWS]
        pq.write_table(
            _products(chosen, rng, texts),
            place / f"part-{number:03d}.parquet",
            row_group_size=ROW_GROUP,
            use_dictionary=["maker", "kind"],
            compression="snappy",
        )
        yield start + len(chosen)


def _products(ids: Any, rng: np.random.Generator, texts: dict[str, pa.Array]) -> pa.Table:
    count = len(ids)
    cost = np.round(rng.gamma(2.0, 40.0, count), 2)

    def any_of(name: str) -> pa.Array:
        return texts[name].take(pa.array(rng.integers(0, len(texts[name]), count)))

    return pa.table(
        {
            "product_id": pa.array(ids, pa.int64()),
            "title": any_of("title"),
            "maker": any_of("maker"),
            "kind": any_of("kind"),
            "barcode": pa.array(rng.integers(10**12, 10**13, count)),
            "supplier_id": pa.array(rng.integers(1, 50_000, count)),
            "cost": pa.array(cost),
            "price": pa.array(np.round(cost * rng.uniform(1.2, 2.5, count), 2)),
            "weight": pa.array(rng.uniform(0.05, 30.0, count)),
            "stock": pa.array(rng.integers(0, 5_000, count)),
            "listed": pa.array(rng.integers(15_000, 20_500, count).astype("datetime64[D]")),
            "about": any_of("about"),
        }
    )


def _texts(rng: np.random.Generator) -> dict[str, pa.Array]:
    def phrases(count: int, *words: list[str]) -> list[str]:
        drawn = [rng.integers(0, len(each), count) for each in words]
        return [" ".join(each[i] for each, i in zip(words, row, strict=True)) for row in zip(*drawn, strict=True)]

    codes = [f"No. {i}" for i in range(100, 1000)]
    return {
        "maker": pa.array(_MAKERS),
        "kind": pa.array(_KINDS),
        "title": pa.array(phrases(20_000, _MAKERS, _LOOKS, _KINDS, codes)),
        "about": pa.array(phrases(20_000, _LOOKS, _KINDS, ["with a"], _LOOKS, _KINDS, ["from"], _MAKERS, codes)),
    }


@dataclass
class Arrivals:
    """Orders that arrive as files: written beside, then renamed into place, by a thread of their own."""

    place: Path
    rows: int
    products: int
    seed: int
    files: int = 40
    pause: float = 0.5

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        #: Rows that have arrived so far, and when each file did.
        self.arrived = 0
        self.log: list[tuple[float, int]] = []
        self._rng = np.random.default_rng(self.seed + 1)
        self._made = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._deliver, name="orders", daemon=True)
        self._failure: BaseException | None = None

    @property
    def complete(self) -> bool:
        """Whether all orders have arrived. Raises what kept them from arriving."""
        if self._failure is not None:
            raise self._failure
        return self.arrived == self.rows

    def first(self) -> None:
        """Deliver one file now."""
        self._one()

    def start(self) -> None:
        """Deliver the others, one after the other."""
        self._thread.start()

    def stop(self) -> None:
        """Deliver no more."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _deliver(self) -> None:
        try:
            while self.arrived < self.rows and not self._stop.wait(self.pause):
                self._one()
        except BaseException as failure:
            self._failure = failure

    def _one(self) -> None:
        count = self._share(self._made)
        hidden = self.place / f".order-{self._made:05d}.parquet"
        pq.write_table(self._orders(count), hidden)
        hidden.rename(self.place / hidden.name[1:])
        self._made += 1
        self.arrived += count
        self.log.append((time.time(), self.arrived))

    def _share(self, number: int) -> int:
        each = max(self.rows // self.files, 1)
        return self.rows - self.arrived if number >= self.files - 1 else min(each, self.rows - self.arrived)

    def _orders(self, count: int) -> pa.Table:
        rng = self._rng
        # A few products are asked for most; some orders name none, or one that is not in the table.
        rank = np.minimum(rng.pareto(0.6, count) * 50, 9e18)
        wanted = (rank.astype(np.int64) * 2_654_435_761) % self.products
        wanted = np.where(rng.random(count) < 0.5, rng.integers(0, self.products, count), wanted)
        wanted[rng.random(count) < _UNKNOWN] += self.products
        now = np.datetime64(time.time_ns() // 1000, "us")
        return pa.table(
            {
                "order_id": pa.array(np.arange(self.arrived, self.arrived + count)),
                "product_id": pa.array(wanted, mask=rng.random(count) < _NULL),
                "customer_id": pa.array(rng.integers(1, 1_000_000, count)),
                "quantity": pa.array(rng.integers(1, 9, count, dtype=np.int32)),
                "ordered_at": pa.array(now + np.arange(count).astype("timedelta64[us]"), pa.timestamp("us", tz="UTC")),
            }
        )
