"""One window join for many queries: 004 (Hammad, Franklin, Aref, Elmagarmid, TR 03-001)."""

from dataclasses import replace

from papers.figure import Figure
from papers.shared import bursts, formulas, memory, windows


def _plain(figure: Figure) -> Figure:
    """Claims as plain truths, where NumPy's have come of comparisons."""

    def claims(data):  # type: ignore[no-untyped-def]
        return [one if one.holds is None else replace(one, holds=bool(one.holds)) for one in figure.claims(data)]

    return replace(figure, claims=claims)


_ALL = (
    formulas.FIGURE3,
    formulas.FIGURE5,
    windows.FIGURE7,
    windows.FIGURE8,
    windows.FIGURE9,
    bursts.FIGURE10,
    memory.MEMORY,
)

FIGURES = tuple(map(_plain, _ALL))
