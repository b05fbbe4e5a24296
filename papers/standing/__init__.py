"""Chapter 4 of 003, figure by figure: very many standing join queries."""

from papers.standing import band_joins, histogram, hotspots, routing, select_joins, upkeep

FIGURES = (
    hotspots.COVERAGE,
    *select_joins.FIGURES,
    hotspots.SHARE,
    *band_joins.FIGURES,
    upkeep.FIGURE,
    histogram.FIGURE,
    *routing.FIGURES,
)
