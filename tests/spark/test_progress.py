"""Numbers of micro-batches, without a JVM."""

from penstock.spark.listener import Progress


def test_what_stands_is_as_it_was_where_no_kernel_ran():
    progress = Progress()
    for rows, recall, memory in ((5, 0.8, 100.0), (None, None, None)):
        batch = {"rows_in": rows, "recall_estimate": recall, "memory": memory}
        progress.add(batch, counted={"rows_in"}, standing={"recall_estimate", "memory"})
    assert progress.batches[-1] == {"rows_in": 0.0, "recall_estimate": 0.8, "memory": 100.0}
    assert progress.totals == {"rows_in": 5}
