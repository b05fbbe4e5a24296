"""Numbers of micro-batches, without a JVM."""

import json
import warnings
from unittest.mock import Mock

import pyarrow as pa
import pytest

from penstock.kernels.mesh.following import FollowingJoin
from penstock.plan.passthrough import PassThroughPlan
from penstock.spark.flow import Flow
from penstock.spark.listener import Listener, Progress
from penstock.spark.reports import Reports, Teller


class Context:
    """Of Spark: what a task adds is there at once."""

    def accumulator(self, zero, how):
        accumulator = Mock(value=zero)
        accumulator.add = lambda more: how.addInPlace(accumulator.value, more)
        return accumulator


REPORTS = Reports(Context())


def test_what_stands_is_as_it_was_where_no_kernel_ran():
    progress = Progress()
    for rows, recall, memory in ((5, 0.8, 100.0), (None, None, None)):
        batch = {"rows_in": rows, "recall_estimate": recall, "memory": memory}
        progress.add(batch, counted={"rows_in"}, standing={"recall_estimate", "memory"})
    assert progress.batches[-1] == {"rows_in": 0.0, "recall_estimate": 0.8, "memory": 100.0}
    assert progress.totals == {"rows_in": 5}


@pytest.mark.parametrize(("flows", "policy", "warned"), [(2, "min", 1), (2, "max", 0), (1, "min", 0)])
def test_flows_that_wait_for_each_other_are_told_of(tmp_path, flows, policy, warned):
    spark, plan = Mock(conf=Mock(get=lambda name: policy)), Mock(keeps_nothing=False)
    listener, kept = Listener(tmp_path, REPORTS), [Mock(_spark=spark, _plan=plan) for _ in range(flows)]
    listener.flows.update({f"f{number}": flow for number, flow in enumerate(kept)})
    observed = {f"f{number}": {"rows_in": 1} for number in range(flows)} | {"theirs": {}}
    said = json.dumps({"id": "q", "batchId": 0, "observedMetrics": observed})
    event = Mock()
    event.progress().json.return_value = said
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        listener.onQueryProgress(event)
    assert len(caught) == warned
    assert all(flow._on_progress.call_count == 1 for flow in kept)


def test_a_query_that_has_ended_leaves_no_copies_of_chunks(tmp_path):
    for query in ("ended", "running"):
        (tmp_path / query / "slot").mkdir(parents=True)
    event = Mock()
    event.id().toString.return_value = "ended"
    Listener(tmp_path, REPORTS).onQueryTerminated(event)
    assert [path.name for path in tmp_path.iterdir()] == ["running"]


def test_a_flow_tells_of_all_its_queries_and_each_of_itself(monkeypatch):
    monkeypatch.setattr("penstock.spark.flow.listen", lambda *_: None)
    schema = pa.schema([("k", pa.int64())])
    flow = Flow(Mock(), PassThroughPlan.checked(schema, key=("k",), slots=1), {"results": schema})
    assert flow.progress()["totals"]["rows_in"] == flow.progress()["batches"] == 0, "nothing was to do"
    for run, batch, rows in (("first", 0, 5.0), ("second", 0, 7.0), ("first", 1, 2.0)):
        event = {"runId": run, "batchId": batch, "timestamp": "2024-01-01T00:00:00Z", "durationMs": {}}
        event |= {"numInputRows": rows}
        flow._on_progress(event, {"rows_in": rows})
    assert flow.progress()["totals"]["rows_in"] == 14.0
    assert flow._of_run("first").progress()["totals"]["rows_in"] == 7.0
    assert flow._of_run("second").progress()["totals"]["rows_in"] == 7.0
    assert [batch["batch"] for batch in flow._of_run("first").history()] == [0, 1]
    assert repr(flow) == "<Flow of pass_through: results>"


def test_what_slots_tell_is_taken_once_by_query_and_micro_batch():
    reports = Reports(Context())
    one, other = Teller("one", reports.told), Teller("other", reports.told)
    one.tell("q", 3, slot=0, numbers={"rows_in": 5})
    one.tell("q", 3, slot=0, numbers={"rows_in": 7})  # run again
    one.tell("q", 3, slot=1, numbers={"rows_in": 2})
    other.tell("q", 3, slot=0, numbers={"rows_in": 1})
    one.tell("q", 2, slot=0, numbers={"rows_in": 99})  # never committed
    one.tell("p", 3, slot=0, numbers={"rows_in": 4})
    assert reports.take("q", 3) == {"one": [{"rows_in": 7.0}, {"rows_in": 2.0}], "other": [{"rows_in": 1.0}]}
    assert reports.take("q", 3) == {}
    assert reports.take("p", 3) == {"one": [{"rows_in": 4.0}]}
    assert not reports.told.value


def test_rows_that_wait_are_not_summed_over_micro_batches(monkeypatch):
    monkeypatch.setattr("penstock.spark.flow.listen", lambda *_: None)
    schema = pa.schema([("k", pa.int64())])
    plan = Mock(reports=FollowingJoin.reports, expect=lambda *_: None, outcome=lambda _: {})
    flow = Flow(Mock(), plan, {"results": schema})
    for batch, said in enumerate(({"rows_in": 5.0, "rows_parked": 3.0}, {"rows_in": 5.0, "rows_parked": 2.0})):
        event = {"runId": "one", "batchId": batch, "timestamp": "2024-01-01T00:00:00Z", "durationMs": {}}
        flow._on_progress(event | {"numInputRows": 5.0}, said)
    assert "rows_parked" not in flow.progress()["totals"]
    assert flow.history()[-1]["rows_parked"] == 2.0
