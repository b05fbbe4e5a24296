"""Files of a table are replaced by others with the same rows."""

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.views import tidy
from penstock.spark.views.groups import SIGN
from penstock.spark.views.store import TableVersion
from tests.spark.views.test_lookup import SCHEMA, rows, write

files = st.lists(st.lists(st.tuples(rows, st.sampled_from([1, -1])), min_size=1, max_size=4), max_size=4)


def count(base, parts):
    """The table that files add up to."""
    found = Counter()
    for path in base:
        found.update((row["k"], row["x"]) for row in pq.read_table(path).to_pylist())
    for path in parts:
        for row in pq.read_table(path).to_pylist():
            found[row["k"], row["x"]] += row[SIGN]
    return {row: n for row, n in found.items() if n}


@settings(max_examples=40)
@given(st.lists(st.lists(rows, max_size=4), max_size=4), files)
def test_a_table_has_the_same_rows_in_fewer_files(base, parts):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidy, "MOST_FILES", 1)
        place = Path(folder)
        version = TableVersion(
            tuple(write(place / f"base{n}.parquet", found) for n, found in enumerate(base)),
            tuple(
                write(place / f"part{n}.parquet", [row for row, _ in found], [sign for _, sign in found])
                for n, found in enumerate(parts)
            ),
        )
        assert tidy.untidy(version) == (len(parts) > 1 or len(base) > 1)
        if not tidy.untidy(version):
            return
        found = tidy.replacement(version, SCHEMA, None, place / "new")
        stays = [[file.path for file in some if file not in found.gone] for some in (version.base, version.parts)]
        assert count([*stays[0], *found.base], [*stays[1], *found.parts]) == count(
            [file.path for file in version.base], [file.path for file in version.parts]
        )
        assert len(stays[0]) + len(stays[1]) + len(found.base) + len(found.parts) < len(base) + len(parts)
