"""What a view asks of the session that it is given, and sessions of its own to refresh in.

The one that it is given belongs to others, who may give it another time zone or let sums overflow while the view is
open: one group would be of rows that were read in two ways. So refreshes have sessions on the same context, with the
settings that there were when the view was opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import SessionNotReady
from penstock.spark.views.delta import BROADCAST, SMALL_TABLE
from penstock.spark.views.store import File, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Groups up to which one task puts them together.
FEW_GROUPS = 100_000
_ADAPTIVE = "spark.sql.adaptive.enabled"
_TASKS = "spark.sql.shuffle.partitions"
_ANSI = "spark.sql.ansi.enabled"
#: Whether old dates in Parquet are those of the calendar that Spark had before its version 3.
_CALENDARS = [
    f"spark.sql.parquet.{kind}RebaseModeIn{way}" for kind in ("datetime", "int96") for way in ("Read", "Write")
]


def check_session(spark: SparkSession) -> None:
    """Refuse a session in which values would be others than a view says."""
    if spark.conf.get(_ANSI) != "true":
        raise SessionNotReady(
            f"This Spark session has {_ANSI} = false.",
            why="A sum that overflows would be wrong, or NULL, without a word.",
            do=f'Set spark.conf.set("{_ANSI}", "true"), or give the view a session that has it: '
            "own = spark.newSession(), View(…, spark=own).",
        )
    for name in _CALENDARS:
        if str(spark.conf.get(name)).upper() == "LEGACY":
            raise SessionNotReady(
                f"This Spark session has {name} = LEGACY.",
                why="Dates before 1582 would be other days to Spark than to what looks rows and changes up.",
                do=f'Set spark.conf.set("{name}", "CORRECTED"), or give the view a session that has it: '
                "own = spark.newSession(), View(…, spark=own).",
            )


def own_session(spark: SparkSession) -> SparkSession:
    """A session on the same context, with the settings of another as they are now."""
    made = spark.newSession()
    theirs: Mapping[str, str] = spark.conf.getAll
    for name, value in theirs.items():
        if name.startswith("spark.sql.") and made.conf.isModifiable(name) and made.conf.get(name, None) != value:
            made.conf.set(name, value)
    return made


def quick_session(spark: SparkSession) -> SparkSession:
    """The same, for refreshes that are small.

    Spark's adaptive planning runs a query stage by stage and plans the rest anew after each. Where every table but one
    is sent to all tasks and the groups are few, there is nothing to learn on the way, and a refresh takes a quarter
    less without it.
    """
    made = own_session(spark)
    made.conf.set(_ADAPTIVE, "false")
    made.conf.set(_TASKS, "1")
    return made


def is_quick(now: Manifest, table: str, part: File) -> bool:
    """Whether a refresh needs no shuffle but that of its few groups."""
    large = sum(version.size > SMALL_TABLE for name, version in now.tables.items() if name != table)
    return part.rows <= BROADCAST and large <= 1 and sum(file.rows for file in now.state) <= FEW_GROUPS
