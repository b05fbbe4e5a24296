"""Numbers of micro-batches, without a JVM."""

from unittest.mock import Mock

import pyarrow as pa

from penstock.plan.passthrough import PassThroughPlan
from penstock.spark.flow import Flow
from penstock.spark.listener import Progress


def test_what_stands_is_as_it_was_where_no_kernel_ran():
    progress = Progress()
    for rows, recall, memory in ((5, 0.8, 100.0), (None, None, None)):
        batch = {"rows_in": rows, "recall_estimate": recall, "memory": memory}
        progress.add(batch, counted={"rows_in"}, standing={"recall_estimate", "memory"})
    assert progress.batches[-1] == {"rows_in": 0.0, "recall_estimate": 0.8, "memory": 100.0}
    assert progress.totals == {"rows_in": 5}


def test_a_flow_tells_of_all_its_queries_and_each_of_itself(monkeypatch):
    monkeypatch.setattr("penstock.spark.flow.listen", lambda *_: None)
    schema = pa.schema([("k", pa.int64())])
    flow = Flow(Mock(), PassThroughPlan.checked(schema, key=("k",), slots=1), {"results": schema})
    for run, batch, rows in (("first", 0, 5.0), ("second", 0, 7.0), ("first", 1, 2.0)):
        event = {"runId": run, "batchId": batch, "timestamp": "2024-01-01T00:00:00Z", "durationMs": {}}
        event |= {"numInputRows": rows}
        flow._on_progress(event, {"rows_in": rows})
    assert flow.progress()["totals"]["rows_in"] == 14.0
    assert flow._of_run("first").progress()["totals"]["rows_in"] == 7.0
    assert flow._of_run("second").progress()["totals"]["rows_in"] == 7.0
    assert [batch["batch"] for batch in flow._of_run("first").history()] == [0, 1]
    assert repr(flow) == "<Flow of pass_through: results>"
