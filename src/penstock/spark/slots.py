"""Slot numbers as Spark sees them: ids that `groupBy` spreads over all shuffle partitions, however many there are.

The number of shuffle partitions is fixed when a query first starts, and a session that starts it again may say another;
state is found by id, so the ids must not depend on either. Murmur3 of an int can be undone: the id of slot n is the one
whose hash is n, and it lies on partition n modulo their number, whatever that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.tables.keys import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASK = 0xFFFFFFFF
_SEED = 42
_C1, _C2, _M = 0xCC9E2D51, 0x1B873593, 5
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35


def spread(slots: int) -> tuple[int, ...]:
    """Ids for `slots` slots, the n-th on shuffle partition n modulo their number."""
    return tuple(_id_of(slot) for slot in range(slots))


def partition_of(slot_id: int, partitions: int) -> int:
    """The shuffle partition on which Spark puts an int key: Murmur3 (x86, 32 bits, seed 42), then a positive
    remainder.
    """
    h = _rotate(_rotate((slot_id & _MASK) * _C1 & _MASK, 15) * _C2 & _MASK ^ _SEED, 13)
    h = (h * _M + 0xE6546B64) & _MASK ^ 4
    h = (h ^ h >> 16) * _F1 & _MASK
    h = (h ^ h >> 13) * _F2 & _MASK
    return _signed(h ^ h >> 16) % partitions


def _id_of(hashed: int) -> int:
    """The int whose Murmur3 is `hashed`: every step of it, undone in reverse."""
    h = (hashed ^ hashed >> 16) * pow(_F2, -1, 1 << 32) & _MASK
    h = (h ^ h >> 13 ^ h >> 26) * pow(_F1, -1, 1 << 32) & _MASK
    h = h ^ h >> 16 ^ 4
    h = _rotate((h - 0xE6546B64) * pow(_M, -1, 1 << 32) & _MASK, 19) ^ _SEED
    return _signed(_rotate(h * pow(_C2, -1, 1 << 32) & _MASK, 17) * pow(_C1, -1, 1 << 32) & _MASK)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def shuffle_partitions(spark: SparkSession) -> int:
    """How many shuffle partitions a query started now will have."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def usual_slots(spark: SparkSession) -> int:
    """How many slots share the work where nobody says: one for each shuffle partition, as far as there can be.

    On a single machine no more than it has cores: Spark's own 200 partitions would leave each slot little memory.
    """
    context = spark.sparkContext
    most = context.defaultParallelism if (context.master or "").startswith("local") else PARTITIONS
    return min(shuffle_partitions(spark), most, PARTITIONS)
