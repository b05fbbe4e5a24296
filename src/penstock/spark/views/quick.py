"""A session of a view's own, for refreshes that are small.

Spark's adaptive planning runs a query stage by stage and plans the rest anew after each. Where every table but one is
sent to all tasks and the groups are few, there is nothing to learn on the way, and a refresh takes a quarter less
without it. Other settings, and all that was registered, are those of the session that the view was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.views.delta import BROADCAST, SMALL_TABLE
from penstock.spark.views.store import File, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Groups up to which one task puts them together.
FEW_GROUPS = 100_000
_ADAPTIVE = "spark.sql.adaptive.enabled"
_TASKS = "spark.sql.shuffle.partitions"


def quick_session(spark: SparkSession) -> SparkSession:
    """A session on the same context, with the settings of another and fewer stages."""
    made = spark.newSession()
    theirs: Mapping[str, str] = spark.conf.getAll
    for name, value in theirs.items():
        if name.startswith("spark.sql.") and made.conf.isModifiable(name) and made.conf.get(name, None) != value:
            made.conf.set(name, value)
    made.conf.set(_ADAPTIVE, "false")
    made.conf.set(_TASKS, "1")
    return made


def is_quick(now: Manifest, table: str, part: File) -> bool:
    """Whether a refresh needs no shuffle but that of its few groups."""
    large = sum(version.size > SMALL_TABLE for name, version in now.tables.items() if name != table)
    return part.rows <= BROADCAST and large <= 1 and sum(file.rows for file in now.state) <= FEW_GROUPS
