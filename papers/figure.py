"""What a figure is: something that runs, says which claims hold, and draws itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.claims import Claim

Say = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    `run(quick, say)` measures, and says where it is; `claims` and `plot` work on what it returned.
    """

    name: str
    about: str
    run: Callable[[bool, Say], Any]
    claims: Callable[[Any], Sequence[Claim]]
    plot: Callable[[Any, Path], None]
