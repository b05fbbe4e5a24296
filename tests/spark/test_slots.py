"""How many slots there are where nobody says, without starting a session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.slots import usual_slots


@pytest.mark.parametrize(("partitions", "slots"), [("2", 2), ("64", 64), ("200", 64)])
def test_a_session_with_spark_s_own_number_of_partitions_is_taken(partitions: str, slots: int) -> None:
    session: Any = SimpleNamespace(conf={"spark.sql.shuffle.partitions": partitions})
    assert usual_slots(session) == slots
