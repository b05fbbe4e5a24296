"""Slot numbers as Spark sees them: ids that `groupBy` spreads over all shuffle partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASK = 0xFFFFFFFF


def spread(slots: int, partitions: int) -> tuple[int, ...]:
    """Ids for `slots` slots, the n-th on shuffle partition n (modulo their number)."""
    ids: list[int] = []
    candidate = 0
    while len(ids) < slots:
        if partition_of(candidate, partitions) == len(ids) % partitions:
            ids.append(candidate)
        candidate += 1
    return tuple(ids)


def partition_of(slot_id: int, partitions: int) -> int:
    """The shuffle partition on which Spark puts an int key: Murmur3 (x86, 32 bits, seed 42), then a positive
    remainder.
    """
    k = (slot_id & _MASK) * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    k = k * 0x1B873593 & _MASK
    h = 42 ^ k
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return (h - (1 << 32) if h >> 31 else h) % partitions


def shuffle_partitions(spark: SparkSession) -> int:
    """How many shuffle partitions a query started now will have."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
