"""One program that joins a stream of JSON files with a table, into both kinds of sinks; made to be killed.

    python driver.py <workshop> [--sinks ledger,spark,shed] [--division input] [--fault …] [--trigger available|always]

The workshop is a directory made by `workshop.Workshop`. Ends by itself when all input is joined, or on SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

FAULTS = ("none", "drop-row", "repeat-batch", "no-ledger")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("workshop", type=Path)
    arguments.add_argument("--sinks", default="ledger,spark")
    arguments.add_argument("--division", default="pages")
    arguments.add_argument("--fault", choices=FAULTS, default="none")
    arguments.add_argument("--trigger", choices=("available", "always"), default="available")
    arguments.add_argument("--master", default="")
    arguments.add_argument("--bare", action="store_true", help="no word about signals, as in many a script")
    said = arguments.parse_args()
    base = said.workshop
    os.environ["TMPDIR"] = str(base / "tmp")

    import penstock as ps
    from penstock.plan.join_table import least_memory
    from penstock.spark.signals import stop_on_signal

    # A quick start matters more here than speed later.
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={base / 'tmp'}"
    settings = {"spark_driver_extraJavaOptions": java, "spark_driver_memory": "1g"}
    if said.master:
        settings |= {"spark_master": said.master, "spark_executor_memory": "1g", "spark_cores_max": "2"}
    spark = ps.session("faults", cores=2, **settings)
    plant(said.fault, pytest.MonkeyPatch())
    trigger = {"availableNow": True} if said.trigger == "available" else {"processingTime": "0 seconds"}
    started: list[Any] = []
    for sink in said.sinks.split(","):
        orders = ps.read_json(spark, str(base / "orders"), "order_id long, product_id long", maxFilesPerTrigger=1)
        products = ps.table(str(base / "products"), key="product_id")
        if sink == "shed":
            # As little memory as can be, and no time at all: what does not fit one window is shed.
            least = least_memory(products, 2, "rows")
            flow = ps.join_table(orders, products, on="product_id", memory=least, shed="keepw", max_lag="1 us")
            places = {"results": str(base / "out"), "set_aside": str(base / "aside"), "shed": str(base / "archive")}
            started.append(flow.start(checkpoint=str(base / "ck"), trigger=trigger, **places))
            continue
        pages = None if said.division == "input" else 2
        options = {"memory": "8MB", "division": said.division, "pages_per_step": pages}
        flow = ps.join_table(orders, products, on="product_id", **options)
        if sink == "ledger":
            places = {"results": str(base / "out"), "set_aside": str(base / "aside")}
            started.append(flow.start(checkpoint=str(base / "ck"), trigger=trigger, **places))
        else:
            writer = flow.results.writeStream.format("parquet").option("path", str(base / "spark-out"))
            started.append(writer.option("checkpointLocation", str(base / "spark-ck")).trigger(**trigger).start())
    print("started", flush=True)
    try:
        with contextlib.nullcontext() if said.bare else stop_on_signal(*started):
            for one in started:
                one.awaitTermination() if hasattr(one, "awaitTermination") else one.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    spark.stop()
    print("done", flush=True)


def plant(fault: str, patch: pytest.MonkeyPatch) -> None:
    """Break a promise on purpose: the checks must notice."""
    from penstock.operators import join_table
    from penstock.spark import flow, sink

    run, commit = join_table.run, sink.commit

    def twice(ledgers: Any, batch: int, written: list[Any]) -> None:
        commit(ledgers, batch, written)
        for file in ledgers["results"].place.glob("part-00000001-*.parquet"):
            file.with_name(f"again-{file.name}").write_bytes(file.read_bytes())

    def unwritten(ledger: Any, batch: int, files: list[dict[str, Any]]) -> None:
        for file in files:
            (sink.staging(ledger.place) / file["name"]).rename(ledger.place / file["name"])

    if fault == "drop-row":
        patch.setattr(join_table, "run", lambda plan, inputs: run(_dropping(plan), inputs))
    elif fault == "repeat-batch":
        patch.setattr(flow, "commit", twice)
    elif fault == "no-ledger":
        patch.setattr(sink.Ledger, "commit", unwritten)
        patch.setattr(flow, "check_agreement", lambda *_: None)  # it would miss the entries at the restart


def _dropping(plan: Any) -> Any:
    import pyarrow.compute as pc

    from penstock.kernels.contract import RESULTS, Emission
    from penstock.plan.join_table import JoinTablePlan

    def lossy(work: Any) -> Any:
        def without_order_1(*arguments: Any) -> Any:
            for channel, rows in work(*arguments):
                kept = rows.filter(pc.not_equal(rows["order_id"], 1)) if channel == RESULTS else rows
                yield Emission(channel, kept)

        return without_order_1

    class Dropping(JoinTablePlan):
        """A plan whose kernels lose the results of one order. Of this program, so workers get it by value."""

        def make(self, slot: int) -> Any:
            kernel = JoinTablePlan.make(self, slot)
            kernel.step = lossy(kernel.step)  # type: ignore[method-assign]
            kernel.tick = lossy(kernel.tick)  # type: ignore[method-assign]
            return kernel

    return Dropping(**vars(plan))


if __name__ == "__main__":
    sys.exit(main())
