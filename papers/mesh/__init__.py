"""Mesh join: 000 (Polyzotis et al., TKDE 2008) and 001 (Naeem et al., 2010)."""

from papers.mesh import default_buffer, figure10a, figure10b, figure10cd, figure11

FIGURES = (figure10a.FIGURE, figure10b.FIGURE, *figure10cd.FIGURES, figure11.FIGURE, default_buffer.FIGURE)
