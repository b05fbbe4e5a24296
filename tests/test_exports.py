"""The public names are exactly those of `__all__`, and each of them is there."""

import importlib
import subprocess
import sys

import pytest

import penstock


def test_public_names():
    assert penstock.__all__ == sorted(penstock.__all__)
    assert set(penstock.__all__) == {
        "Changing",
        "Flow",
        "Joined",
        "StandingQueries",
        "Subscriptions",
        "View",
        "__version__",
        "archive",
        "as_of",
        "band",
        "band_join",
        "catch_up",
        "catch_up_streams",
        "deleted_rows",
        "errors",
        "heeb",
        "join_shared",
        "join_streams",
        "join_table",
        "landmark",
        "prepare",
        "publish",
        "query",
        "range",
        "read_json",
        "select_join",
        "rows",
        "session",
        "similar",
        "sql",
        "stream",
        "surrogate_keys",
        "table",
        "where",
    }
    assert dir(penstock) == penstock.__all__


def test_every_public_name_has_a_home():
    assert set(penstock._HOMES) == set(penstock.__all__) - {"__version__"}


@pytest.mark.parametrize("name", sorted(penstock._HOMES))
def test_public_name_can_be_used(name):
    module, attribute = penstock._HOMES[name]
    value = getattr(penstock, name)
    home = importlib.import_module(module)
    assert value is (home if attribute is None else getattr(home, attribute))


def test_star_import_gives_the_public_names():
    program = "from penstock import *; import penstock; assert all(n in globals() for n in penstock.__all__)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match="join_table"):
        _ = penstock.join_tabel


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert version("penstock") == penstock.__version__
