"""The SQL that the papers print, as they print it, and what a catalogue needs for it.

000 (Polyzotis et al.), 001 (Naeem et al.) and 002 (Das et al.) print no SQL; their joins are written here in ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: 004 (Hammad et al., "Scheduling for Shared Window Joins Over Data Streams"), §2.1: two streams of sensors.
THRESHOLDS = """SELECT T.LocationId
FROM Temperature T, Humidity H
WHERE T.Value > Thresholdt and H.Value > Thresholdh
and T.LocationId = H.LocationId
WINDOW 1 min;"""

#: The second query there, with a function of the user's.
CORRELATED = """SELECT T.LocationId, H.LocationId
FROM Temperature T, Humidity H
WHERE correlated(T.Value, H.Value) and T.LocationId
≠ H.LocationId
WINDOW 30 min;"""

#: 003, §1.1: measurements of the same moment and area.
SAME_MOMENT = """SELECT *
FROM R, S
WHERE R.timestamp = S.timestamp AND R.areaID = S.areaID
GROUP BY R.areaID"""

#: 003, §1.1: a filter.
TECH = """SELECT price, vol
FROM STOCK
WHERE STOCK.sector = ‘TECH’ AND STOCK.per > 2.5
AND STOCK.price <= 0.95 * STOCK.close"""

#: 003, §1.1 and §5.1: an aggregate over a range.
RANGE_MIN = """SELECT MIN(PER)
FROM STOCK
WHERE low <= RISK AND RISK <= high"""

#: 003, §5.2.3: the same relaxed to a selection.
RELAXED = "SELECT * FROM STOCK WHERE x1 <= RISK AND RISK <= x2"

#: 003, §2.5: a view over four tables.
MIDDLE_EAST = """SELECT MIN (S.supplycost)
FROM PartSupp AS PS, Supplier AS S,
Nation AS N, Region AS R
WHERE S.suppkey = PS.suppkey
AND S.nationkey = N.nationkey
AND N.regionkey = R.regionkey
AND R.name = 'MIDDLE EAST'"""

#: 003, §4.3, in relational algebra there: R ⋈ S with S.B - R.B in a range, and selections on both sides of an equijoin.
BAND = "SELECT R.a, S.c FROM R, S WHERE S.b - R.b BETWEEN -1 AND 2 WINDOW 1 HOUR"
SELECT_JOIN = "SELECT * FROM R, S WHERE R.b = S.b AND R.a BETWEEN 10 AND 60 AND S.c BETWEEN 20 AND 70 WINDOW 1 HOUR"

#: 000, §2, and 001: a stream with a relation.
MESH = "SELECT * FROM updates, stored WHERE updates.id = stored.id MEMORY 16 MB"
#: 002, §2: a sliding window join under a budget, with its heuristic.
APPROXIMATE = "SELECT R.a, S.c FROM R, S WHERE R.b = S.b WINDOW 10000 ROWS MEMORY 16 MB SHED PROB"


@dataclass(frozen=True)
class Printed:
    """A text, the shape that it has, and the constants that it names."""

    text: str
    kind: str
    values: dict[str, Any] = field(default_factory=dict)


PRINTED = {
    "thresholds": Printed(THRESHOLDS, "window join", {"Thresholdt": 30, "Thresholdh": 40.0}),
    "correlated": Printed(CORRELATED, "window join"),
    "same_moment": Printed(SAME_MOMENT, "window join"),
    "tech": Printed(TECH, "selection"),
    "range_min": Printed(RANGE_MIN, "range aggregate", {"low": 2, "high": 7}),
    "relaxed": Printed(RELAXED, "selection", {"x1": 2, "x2": 7}),
    "middle_east": Printed(MIDDLE_EAST, "view"),
    "band": Printed(BAND, "band join"),
    "select_join": Printed(SELECT_JOIN, "select-join"),
    "mesh": Printed(MESH, "table join"),
    "approximate": Printed(APPROXIMATE, "window join"),
}
