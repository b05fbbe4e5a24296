"""One session for all tests that need no kill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.faults.workshop import STARTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def no_program_outlives_its_test() -> Iterator[None]:
    yield
    while STARTED:
        program = STARTED.pop()
        if program.code is None or program.members():
            program.kill()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import penstock as ps

    session = ps.session(cores=2)
    yield session
    session.stop()
