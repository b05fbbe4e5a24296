"""Test kernels without Spark: a host, crash markers, strategies, and the conformance suite. Public.

::

    from penstock.testing import CRASH, Host, play
    from penstock.testing import conformance, strategies  # these two need Hypothesis: penstock[testing]
"""

from penstock.testing.event_time import EventTime
from penstock.testing.host import Host, Store
from penstock.testing.keys import uniform_keys, zipf_keys
from penstock.testing.markers import CRASH, CRASH_MIDWAY, TICK, as_sent, play, shuffled
from penstock.testing.rows import assert_same_rows, bag

__all__ = [
    "CRASH",
    "CRASH_MIDWAY",
    "TICK",
    "EventTime",
    "Host",
    "Store",
    "as_sent",
    "assert_same_rows",
    "bag",
    "play",
    "shuffled",
    "uniform_keys",
    "zipf_keys",
]
