"""Continuous joins, views and subscriptions on Apache Spark that never outgrow their memory.

The public names are loaded when first used: `import penstock` alone loads neither pyspark nor pandas, so that kernels
and tables can be used, and tested, without Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import errors as errors
    from penstock.operators.catch_up import catch_up as catch_up
    from penstock.operators.catch_up_streams import catch_up_streams as catch_up_streams
    from penstock.operators.deleted_rows import deleted_rows as deleted_rows
    from penstock.operators.join_shared import join_shared as join_shared
    from penstock.operators.join_streams import archive as archive
    from penstock.operators.join_streams import join_streams as join_streams
    from penstock.operators.join_table import join_table as join_table
    from penstock.operators.standing_queries import StandingQueries as StandingQueries
    from penstock.operators.subscriptions import Joined as Joined
    from penstock.operators.subscriptions import Subscriptions as Subscriptions
    from penstock.operators.surrogate_keys import surrogate_keys as surrogate_keys
    from penstock.operators.view import View as View
    from penstock.plan.conditions import as_of as as_of
    from penstock.plan.conditions import band as band
    from penstock.plan.conditions import range as range  # noqa: A004
    from penstock.plan.conditions import similar as similar
    from penstock.plan.conditions import where as where
    from penstock.plan.join_shared import query as query
    from penstock.plan.join_streams import heeb as heeb
    from penstock.plan.standing_queries import band_join as band_join
    from penstock.plan.standing_queries import select_join as select_join
    from penstock.plan.two_streams import landmark as landmark
    from penstock.plan.two_streams import rows as rows
    from penstock.plan.view import Changing as Changing
    from penstock.spark.flow import Flow as Flow
    from penstock.spark.publishing import publish as publish
    from penstock.spark.session import session as session
    from penstock.spark.sources import read_json as read_json
    from penstock.sql.run import sql as sql
    from penstock.sql.run import stream as stream
    from penstock.tables import prepare as prepare
    from penstock.tables import table as table

__version__ = "0.1.0"

__all__ = [
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
    "rows",
    "select_join",
    "session",
    "similar",
    "sql",
    "stream",
    "surrogate_keys",
    "table",
    "where",
]

# name -> (module, attribute in it, or None for the module itself)
_HOMES: dict[str, tuple[str, str | None]] = {
    "Changing": ("penstock.plan.view", "Changing"),
    "Flow": ("penstock.spark.flow", "Flow"),
    "Joined": ("penstock.operators.subscriptions", "Joined"),
    "StandingQueries": ("penstock.operators.standing_queries", "StandingQueries"),
    "Subscriptions": ("penstock.operators.subscriptions", "Subscriptions"),
    "archive": ("penstock.operators.join_streams", "archive"),
    "View": ("penstock.operators.view", "View"),
    "as_of": ("penstock.plan.conditions", "as_of"),
    "band": ("penstock.plan.conditions", "band"),
    "band_join": ("penstock.plan.standing_queries", "band_join"),
    "catch_up": ("penstock.operators.catch_up", "catch_up"),
    "catch_up_streams": ("penstock.operators.catch_up_streams", "catch_up_streams"),
    "deleted_rows": ("penstock.operators.deleted_rows", "deleted_rows"),
    "errors": ("penstock.errors", None),
    "heeb": ("penstock.plan.join_streams", "heeb"),
    "join_shared": ("penstock.operators.join_shared", "join_shared"),
    "join_streams": ("penstock.operators.join_streams", "join_streams"),
    "join_table": ("penstock.operators.join_table", "join_table"),
    "landmark": ("penstock.plan.two_streams", "landmark"),
    "prepare": ("penstock.tables", "prepare"),
    "publish": ("penstock.spark.publishing", "publish"),
    "query": ("penstock.plan.join_shared", "query"),
    "range": ("penstock.plan.conditions", "range"),
    "read_json": ("penstock.spark.sources", "read_json"),
    "select_join": ("penstock.plan.standing_queries", "select_join"),
    "rows": ("penstock.plan.two_streams", "rows"),
    "session": ("penstock.spark.session", "session"),
    "similar": ("penstock.plan.conditions", "similar"),
    "sql": ("penstock.sql", None),
    "stream": ("penstock.sql.run", "stream"),
    "surrogate_keys": ("penstock.operators.surrogate_keys", "surrogate_keys"),
    "table": ("penstock.tables", "table"),
    "where": ("penstock.plan.conditions", "where"),
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}; it has: {', '.join(__all__)}")
    module, attribute = home
    found = importlib.import_module(module)
    value: object = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
