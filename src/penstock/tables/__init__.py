"""Tables: a relation on disk as pages that can be probed by key hash before anything else is read."""

from __future__ import annotations

from penstock.tables.base import Page, PageReader, Table
from penstock.tables.find import table
from penstock.tables.prepare import prepare

__all__ = ["Page", "PageReader", "Table", "prepare", "table"]
