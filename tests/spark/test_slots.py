"""How many slots there are where nobody says, without starting a session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.slots import usual_slots


@pytest.mark.parametrize(
    ("master", "cores", "partitions", "slots"),
    [
        ("local[4,4]", 4, "4", 4),
        ("local[*]", 8, "200", 8),
        ("local[8]", 8, "2", 2),
        ("local[96]", 96, "200", 64),
        ("spark://there:7077", 2, "200", 64),
        ("yarn", 2, "12", 12),
    ],
)
def test_a_session_with_spark_s_own_number_of_partitions_is_taken(
    master: str, cores: int, partitions: str, slots: int
) -> None:
    context = SimpleNamespace(master=master, defaultParallelism=cores)
    session: Any = SimpleNamespace(conf={"spark.sql.shuffle.partitions": partitions}, sparkContext=context)
    assert usual_slots(session) == slots
