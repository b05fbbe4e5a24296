"""Mesh join: 000 (Polyzotis et al., TKDE 2008) and 001 (Naeem et al., 2010)."""

from papers.mesh import figure11

FIGURES = (figure11.FIGURE,)
