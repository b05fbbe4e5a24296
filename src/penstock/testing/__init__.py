"""Test kernels without Spark: a host, crash markers, strategies, and the conformance suite. Public.

::

    from penstock.testing import CRASH, Host, play
    from penstock.testing import conformance, strategies  # these two need Hypothesis
"""

from penstock.testing.event_time import EventTime
from penstock.testing.host import Host, Store

__all__ = ["EventTime", "Host", "Store"]
