"""Tell people when the lowest price-to-earnings ratio within their range of risk changes: Spark, NATS and a gateway.

./dev run python examples/watch_minima.py        (needs nats-server on the PATH; ./dev test installs it)
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.broker.receiver import NatsGateway
from penstock.broker.server import NatsServer
from penstock.spark.publishing import Publishing

SCHEMA = "symbol string, risk double, per double, at long"
PEOPLE = {"Ann": (10.0, 30.0), "Bo": (25.0, 60.0), "Cy": (0.0, 100.0)}


def main(folder: Path) -> dict[str, list[float | None]]:
    write_quotes(folder / "quotes")
    spark = ps.session()
    quotes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "quotes"))
    flow = ps.Subscriptions(quotes, x="risk", y="per", key="symbol", order="at", agg="min")
    with NatsServer() as broker:
        running = ps.publish(
            flow, to=broker.url, name="stocks", checkpoint=str(folder / "ck"), trigger={"availableNow": True}
        )
        told = asyncio.run(listen(broker.url, running))
    for name, answers in told.items():
        print(f"{name}, risk {PEOPLE[name][0]:.0f} to {PEOPLE[name][1]:.0f}: {answers}")
    return told


async def listen(url: str, running: Publishing) -> dict[str, list[float | None]]:
    """Everyone hears every change of their own minimum, and nothing else."""
    gateway = await NatsGateway(url, "stocks", "gateway-1").open(patience=120)
    people = {name: await gateway.subscribe(*ends) for name, ends in PEOPLE.items()}
    while not await asyncio.to_thread(running.wait, 0.1):
        pass
    await asyncio.sleep(0.3)
    await gateway.close()
    return {name: [change.value for change in someone.take()] for name, someone in people.items()}


def write_quotes(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(1)
    risk = rng.uniform(0, 100, 50)
    for number in range(2):
        who = rng.integers(0, 50, 100)
        quotes = pa.table(
            {
                "symbol": [f"S{one}" for one in who],
                "risk": risk[who],
                "per": np.round(rng.uniform(5, 40, 100), 1),
                "at": number * 100 + np.arange(100),
            }
        )
        path = folder / f"{number}.parquet"
        pq.write_table(quotes, path)
        # Spark reads files in the order of their times, and these are made in the same moment.
        os.utime(path, (1_700_000_000 + number,) * 2)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
