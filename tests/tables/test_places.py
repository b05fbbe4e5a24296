"""Paths that people give."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadOption
from penstock.tables.places import place_of


@pytest.mark.parametrize("remote", ["s3a://bucket/out", "hdfs://host:8020/out", Path("gs://bucket/out"), "file:out"])
def test_what_is_not_local_is_refused_before_a_directory_of_that_name_is_made(remote):
    with pytest.raises(BadOption, match=r"results: .* is not a local path"):
        place_of(remote, "results")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("~/out", Path.home() / "out"),
        ("file:/srv/out", Path("/srv/out")),
        ("file:///srv/a b", Path("/srv/a b")),
        (Path("out"), Path.cwd() / "out"),
        ("c:/out", Path.cwd() / "c:/out"),
    ],
)
def test_where_a_path_leads(given, meant):
    assert place_of(given, "results") == meant


@pytest.mark.parametrize("none", ["", "a\0b", 5, None, b"/srv", "a" * 300, "~nobody-of-that-name/out"])
def test_no_path(none):
    with pytest.raises(BadOption, match="is not a path"):
        place_of(none, "results")
