"""A kernel that stores other bytes in every run, against the contract: a replay must replace what was there.

python -m tests.faults.wild <folder with in/>
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.kernels.contract import Changes
from penstock.kernels.passthrough import PassThrough
from penstock.plan.passthrough import PassThroughPlan


class Wild(PassThrough):
    """A chunk of random bytes for every step, for ever; the head says which."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._stored: list[str] = []

    def changes(self) -> Changes:
        blob = os.urandom(64)
        self._stored.append(blob.hex())
        return Changes({f"c{len(self._stored):06d}": pa.py_buffer(blob)}, ())

    def head(self) -> bytes:
        return json.dumps(self._stored).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        self._stored = json.loads(head)
        assert [bytes(chunks[name]).hex() for name in sorted(chunks)] == self._stored


@dataclass(frozen=True)
class WildPlan(PassThroughPlan):
    """One slot."""

    def make(self, slot: int) -> Wild:
        return Wild(self.stream)


def main() -> None:
    base = Path(sys.argv[1])
    os.environ["TMPDIR"] = str(base / "tmp")

    import penstock as ps
    from penstock.spark.runtime import run

    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={base / 'tmp'}"
    spark = ps.session("faults", cores=1, spark_driver_extraJavaOptions=java, spark_driver_memory="1g")
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(base / "in"))
    flow = run(WildPlan.checked(pa.schema([("id", pa.int64())]), key=("id",), slots=1), [frame])
    places = {name: str(base / name) for name in ("results", "set_aside")}
    flow.start(**places, checkpoint=str(base / "ck"), trigger={"availableNow": True}).wait()
    spark.stop()


if __name__ == "__main__":
    # The class that workers import is that of the module, not of the program.
    from tests.faults import wild

    wild.main()
