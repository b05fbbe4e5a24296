"""The numbers that a window join tells after each step."""

from penstock.kernels.contract import Metric

REPORTS = (
    Metric("rows_in", help="rows that arrived on both sides"),
    Metric("rows_late", help="rows older than the watermark; on channels late_left and late_right"),
    Metric("rows_without_key", help="rows whose key is NULL or NaN; they join nothing"),
    Metric("rows_set_aside", help="rows too large for the window, or without an event time"),
    Metric("rows_out", help="results"),
    Metric("rows_without_partner", help="of them, those of an outer join that found no partner"),
    Metric("rows_evicted", help="rows that the policy let go before they left the window"),
    Metric("rows_shed", help="rows that never reached the join: a micro-batch was larger than its share"),
    Metric("rows_expired", help="rows that left the window in memory"),
    Metric("rows_waiting", help="rows in memory after the step"),
    Metric("missed_estimate", help="results that evicted and shed rows would have had, from a sample of them"),
    Metric("recall_estimate", help="share of all results so far that was produced, as estimated", combine="min"),
    Metric("model_left", help="number of the model of the left stream in force; 0 for counted keys", combine="max"),
    Metric("model_right", help="the same of the right stream", combine="max"),
    Metric("memory_left", help="bytes of waiting left rows"),
    Metric("memory_right", help="bytes of waiting right rows"),
    Metric("memory", help="bytes held at the most, over all slots"),
    Metric("budget", help="bytes allowed, over all slots"),
)
