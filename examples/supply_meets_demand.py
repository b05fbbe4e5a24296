"""Twenty thousand merchants each want to know when supply and demand meet in quantities that matter to them.

    ./dev run python examples/supply_meets_demand.py

Every merchant is a standing query: a range of quantities offered and a range of quantities wanted, of the same product.
A wholesaler looks at large ones, a corner shop at small ones. Halfway through some merchants leave and others come.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

MERCHANTS = 20_000
PRODUCTS = 200
SHAPE = ps.select_join("product", left="offered", right="wanted")


def main(folder: Path) -> int:
    rng = np.random.default_rng(1)
    pq.write_table(merchants(rng, np.arange(MERCHANTS)), folder / "merchants.parquet")
    spark = ps.session()
    for number in range(2):
        rows(folder / "supply", number, {"offered": rng.lognormal(5, 1, 2_000)}, rng)
        rows(folder / "demand", number, {"wanted": rng.lognormal(5, 1, 2_000)}, rng)
        changes(folder / "changes", number, rng)
        quantity = "product long, {} double".format
        read = spark.readStream
        flow = ps.StandingQueries(
            read.schema(quantity("offered")).parquet(str(folder / "supply")),
            read.schema(quantity("wanted")).parquet(str(folder / "demand")),
            shape=SHAPE,
            queries=folder / "merchants.parquet",
            changes=read.schema(
                "query long, op string, version long, " + ", ".join(f"{name} double" for name in SHAPE.bounds)
            ).parquet(str(folder / "changes")),
            keep=100_000,
            memory="256MB",
            output="counts",
        )
        if number == 0:
            print(flow.explain())
        flow.start(
            results=str(folder / "found"),
            set_aside=str(folder / "aside"),
            checkpoint=str(folder / "checkpoint"),
            trigger={"availableNow": True},
        ).wait()
        found = pq.read_table(folder / "found")
        total = found["results"].to_numpy().sum()
        print(f"{total:,} pairs for {len(found['query'].unique()):,} merchants after start {number + 1}")
    return int(total)


def merchants(rng: np.random.Generator, ids: np.ndarray) -> pa.Table:
    """Ranges around a few usual sizes of business."""
    size = rng.choice([20.0, 150.0, 1_000.0], len(ids), p=[0.5, 0.3, 0.2])
    low = size[:, None] * rng.uniform(0.90, 0.99, (len(ids), 2))
    high = size[:, None] * rng.uniform(1.01, 1.10, (len(ids), 2))
    bounds = np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1)
    return pa.table({"query": ids, **{name: bounds[:, at] for at, name in enumerate(SHAPE.bounds)}})


def rows(place: Path, number: int, values: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    place.mkdir(exist_ok=True)
    count = len(next(iter(values.values())))
    pq.write_table(pa.table({"product": rng.integers(0, PRODUCTS, count), **values}), place / f"{number}.parquet")


def changes(place: Path, number: int, rng: np.random.Generator) -> None:
    """With the second start: a thousand merchants leave, five hundred come."""
    place.mkdir(exist_ok=True)
    gone, come = np.arange(1_000 * number), MERCHANTS + np.arange(500 * number)
    told = merchants(rng, np.concatenate([gone, come]))
    told = told.add_column(1, "op", pa.array(["remove"] * len(gone) + ["set"] * len(come), pa.string()))
    told = told.add_column(2, "version", pa.array(np.ones(told.num_rows, np.int64)))
    pq.write_table(told, place / f"{number}.parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
