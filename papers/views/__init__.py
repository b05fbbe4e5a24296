"""Views kept within a response time: chapter 2 of 003 (Batch Incremental Query Result Maintenance)."""

from papers.views import figure2_1, figure2_4, figure2_5, figure2_6, figure2_7, opening

FIGURES = (
    opening.FIGURE,
    figure2_1.FIGURE,
    figure2_4.FIGURE,
    figure2_5.FIGURE,
    figure2_6.FIGURE,
    figure2_7.FIGURE,
)
