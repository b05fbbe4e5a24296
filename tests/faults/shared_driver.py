"""One program that runs a shared join, with work left over in every step and a query that is added; made to be killed.

python shared_driver.py <folder with left/ and right/>
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

WINDOWS = {"fast": "1 second", "slow": "20 seconds"}


def main() -> None:
    base = Path(sys.argv[1])
    os.environ["TMPDIR"] = str(base / "tmp")

    import penstock as ps

    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={base / 'tmp'}"
    spark = ps.session("faults", cores=2, spark_driver_extraJavaOptions=java, spark_driver_memory="1g")
    schemas = ("k long, lt timestamp, v long, pad string", "k long, rt timestamp, w long")
    frames = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(base / side))
        for side, schema in zip(("left", "right"), schemas, strict=True)
    ]
    flow = ps.join_shared(
        *frames,
        on="k",
        windows=WINDOWS,
        time=("lt", "rt"),
        lateness="4 s",
        memory="4MB",
        slice=300,
        changes=base / "queries",
    )
    if "middle" not in flow.queries:
        flow.add("middle", "5 seconds", select=[("w", ">", 600)])
    places = {channel: str(base / channel) for channel in flow.channels}
    flow.start(**places, checkpoint=str(base / "ck"), trigger={"availableNow": True}).wait()
    print("done", flow.queries, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
