"""The pipeline that comes with the examples is right, and so are the files of the documentation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from penstock.errors import BadPipeline
from penstock.server.pipelines import checked

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "docs" / "pipelines.md", ROOT / "docs" / "server.md"]


def test_the_example_is_right(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "pipeline", ignore=shutil.ignore_patterns("*-run"))
    pipeline, made = checked(tmp_path / "pipeline")
    assert {query.said["key"] for query in made.values()} == {
        made["enriched"].said["key"],
        made["unknown"].said["key"],
    }
    assert made["large"].schema.names == ["order_id", "name", "amount"]
    assert pipeline.trigger is None


def test_files_on_pages_are_right(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.csv").write_text("order_id,product_id,ordered_at\n1,2,2026-01-01 00:00:00\n")
    shutil.copy(ROOT / "examples" / "pipeline" / "products.csv", tmp_path / "products.csv")
    found = [text for page in PAGES for text in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)]
    assert found
    for text in found:
        (tmp_path / "pipeline.toml").write_text(text.replace('"products/"', '"products.csv"'))
        pipeline, made = checked(tmp_path / "pipeline.toml")
        assert made.keys() == pipeline.queries.keys()
        (tmp_path / "pipeline.toml").write_text(text)
        with pytest.raises(BadPipeline, match="products"):
            checked(tmp_path / "pipeline.toml")
