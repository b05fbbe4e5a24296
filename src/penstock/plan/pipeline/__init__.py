"""Pipelines in a file: streams, tables, queries and sinks as TOML, checked in full before Spark starts."""

from __future__ import annotations

from penstock.plan.pipeline.read import read_pipeline
from penstock.plan.pipeline.spec import Pipeline, Query, Sink, Stream, TableFile

__all__ = ["Pipeline", "Query", "Sink", "Stream", "TableFile", "read_pipeline"]
