"""Range subscriptions: 003 (Xie), chapter 5."""

from papers.subscriptions import server_time, traffic

FIGURES = (*server_time.FIGURES, *traffic.FIGURES)
