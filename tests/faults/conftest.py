"""One session for all tests that need no kill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import penstock as ps

    session = ps.session(cores=2)
    yield session
    session.stop()
