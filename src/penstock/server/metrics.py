"""The numbers of `progress()` for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from penstock.server.engine import Engine

#: Name and help of a metric of groups, and where its value is in what `progress()` says of a group.
_GROUPS = (
    ("batches", "micro-batches since the checkpoint began", ("batches",)),
    ("rows_in", "rows taken in since the server started", ("rows_in",)),
    ("rows_out", "results since the server started", ("rows_out",)),
    ("rows_per_second", "rows a second over the last ten micro-batches", ("rows_per_second",)),
    ("rows_waiting", "rows that wait for partners", ("rows_waiting",)),
    ("rows_set_aside", "rows that could not be used", ("rows_set_aside",)),
    ("rows_late", "rows behind the watermark", ("rows_late",)),
    ("rows_shed", "rows shed under load", ("rows_shed",)),
    ("recall", "estimated part of all results that was produced", ("recall",)),
    ("memory_bytes", "bytes held at the most in the last micro-batch", ("memory", "held_bytes")),
    ("budget_bytes", "bytes allowed", ("memory", "budget_bytes")),
    ("response_seconds", "seconds of the last micro-batch", ("response_seconds", "last")),
)
#: The same of queries that share a window join.
_QUERIES = (
    ("seconds_mean", "from the begin of the micro-batch with the later row until the result was there, lately"),
    ("seconds_max", "the most of these"),
    ("work_mean", "units of work from the arrival of the later row until the result left, lately"),
    ("work_p95", "95 in 100 results took no more of them"),
)
_STATES = ("waiting", "starting", "running", "stopped", "ended", "failed")


class Collector:
    """Asks the engine whenever it is asked itself."""

    def __init__(self, engine: Engine, following: Any) -> None:
        self._engine = engine
        self._following = following

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        said = self._engine.progress()
        for name, text, path in _GROUPS:
            family = GaugeMetricFamily(f"penstock_group_{name}", text, labels=["group", "operator"])
            for group in said["groups"]:
                value = group
                for part in path:
                    value = value.get(part) if isinstance(value, dict) else None
                if value is not None:
                    family.add_metric([group["id"], group["operator"]], float(value))
            yield family
        told = [(query["name"], query["response"]) for query in self._engine.queries() if query["response"]]
        for name, text in _QUERIES:
            family = GaugeMetricFamily(f"penstock_query_{name}", text, labels=["query"])
            for query, response in told:
                family.add_metric([query], response[name])
            yield family
        states = GaugeMetricFamily("penstock_group_state", "1 for the state of a group", labels=["group", "state"])
        for group in said["groups"]:
            for state in _STATES:
                states.add_metric([group["id"], state], float(group["state"] == state))
        yield states
        queries = GaugeMetricFamily("penstock_queries", "registered queries by state", labels=["state"])
        for state, count in said["queries"].items():
            queries.add_metric([state], count)
        yield queries
        yield GaugeMetricFamily("penstock_following", "clients that follow results", value=self._following())
        yield GaugeMetricFamily("penstock_uptime_seconds", "since the server started", value=said["uptime_seconds"])


def metrics(engine: Engine, following: Any) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(Collector(engine, following))
    return generate_latest(registry)
