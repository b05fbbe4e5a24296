"""A program that keeps a view of a `World` until its changes are all in, and may be killed at any moment."""

import sys
from pathlib import Path

import penstock as ps
from tests.spark.views.world import World


def main(folder: Path, sql: str, used: list[str]) -> None:
    spark = ps.session("penstock-view-kills", cores=2)
    view = World.reopened(folder).maintainer(spark, sql, used)
    print("opened", flush=True)
    for name in ("orders", "customers"):
        for entry in view.waiting(name) if name in used else ():
            view.advance(name, [entry])
            print("advanced", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","))
