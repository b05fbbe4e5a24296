"""One program that joins two streams under a tight budget, then finds what was missed; made to be killed.

python streams_driver.py <folder with left/ and right/> <policy>
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

JOIN = {"on": "k", "within": "20 s", "time": ("lt", "rt"), "lateness": "4 s"}


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
    flow = ps.join_streams(*frames, **JOIN, memory="256KB", policy=sys.argv[2], archive=True)
    places = {channel: str(base / channel) for channel in ("results", "late_left", "late_right", "set_aside")}
    places |= ps.archive(base / "archive")
    running = flow.start(**places, checkpoint=str(base / "ck"), trigger={"availableNow": True})
    print("started", flush=True)
    running.wait()
    done = ps.catch_up_streams(spark, base / "archive", **JOIN, into=base / "found")
    print(f"caught up {done.results}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
