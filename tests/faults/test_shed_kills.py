"""A join that sheds, killed: results and the join of the archive, together, are the exact join, each row once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.faults.workshop import Workshop, same_bag

pytestmark = pytest.mark.spark


def both(shop: Workshop) -> tuple[Counter[tuple[object, ...]], int]:
    """What is live and what the archive would give, and how many rows the archive has."""
    archive, table = (f"'{shop.base}/{place}/*.parquet'" for place in ("archive", "products"))
    if not list((shop.base / "archive").glob("*.parquet")):
        return shop.committed(), 0
    later = duckdb.sql(f"SELECT order_id, product_id, price FROM {archive} JOIN {table} USING (product_id)").fetchall()
    ((rows,),) = duckdb.sql(f"SELECT count(*) FROM {archive}").fetchall()
    return shop.committed() + Counter(later), int(rows)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_shed_and_what_is_joined_add_up_after_kills(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "shop", files=8, rows=12_000)
    for point in ("after-sink:2", "in-commit:2", "after-store:3"):
        program = shop.run("--sinks", "shed", crash=f"{point}:driver")
        assert program.code == -9, program.said
        found, _ = both(shop)
        assert not found - shop.exact(), "rows that are wrong or there twice"
    shop.finish("--sinks", "shed")
    found, rows = both(shop)
    assert rows > 1_000, "nothing was shed"
    same_bag(found, shop.exact(), "results and archive")
