"""How far a batch job is: tasks done, of those that are known, told while it runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY = 0.2


@contextmanager
def watched(spark: SparkSession, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """Call `progress(done, total)` again and again while the jobs of the block run. `total` grows as Spark plans."""
    if progress is None:
        yield
        return
    context = spark.sparkContext
    group = f"penstock-{uuid.uuid4().hex[:12]}"
    before = context.getLocalProperty("spark.jobGroup.id")
    context.setLocalProperty("spark.jobGroup.id", group)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_EVERY):
            progress(*_tasks(spark, group))

    looker = threading.Thread(target=look, name="penstock-progress", daemon=True)
    looker.start()
    try:
        yield
    finally:
        ended.set()
        looker.join()
        context.setLocalProperty("spark.jobGroup.id", before)  # type: ignore[arg-type]  # None unsets it


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    known = [info for info in map(tracker.getStageInfo, stages) if info is not None]
    return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)
