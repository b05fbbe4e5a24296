"""Window joins under a budget: 002 (Das, Gehrke, Riedewald, SIGMOD 2003) and 003, chapter 3 (Xie)."""

from dataclasses import replace

from papers.figure import Figure
from papers.window import eviction, recall, temperatures, trends, weather, zipf


def _verdict(holds: object) -> bool | None:
    """A verdict without NumPy's types; None stays none."""
    return None if holds is None else bool(holds)


def _plain(figure: Figure) -> Figure:
    """Claims as plain truths, where NumPy's have come of comparisons."""
    return replace(figure, claims=lambda data: [replace(one, holds=_verdict(one.holds)) for one in figure.claims(data)])


_ALL = (
    zipf.FIGURE3,
    zipf.FIGURE5,
    zipf.FIGURE6,
    weather.FIGURE7,
    zipf.FIGURE9,
    trends.FIGURE9,
    trends.FIGURE10,
    temperatures.FIGURE14,
    trends.FIGURE15,
    trends.FIGURE20,
    recall.FIGURE,
    eviction.FIGURE,
)

FIGURES = tuple(map(_plain, _ALL))
