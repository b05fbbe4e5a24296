"""What runs have left in a folder, family by family: read by the report and by the documentation."""

from __future__ import annotations

import importlib
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from papers.claims import Claim, load_all
from papers.figure import Figure

HOME = Path(__file__).resolve().parent
RESULTS = HOME / "results"


@dataclass(frozen=True)
class Outcome:
    """One figure as its last run left it: claims and a plot, a failure, or nothing yet."""

    family: str
    name: str
    about: str
    claims: Sequence[Claim] = ()
    quick: bool | None = None
    seconds: float | None = None
    failure: str = ""
    plot: Path | None = None
    #: When it ran, as a date.
    day: str = ""

    @property
    def command(self) -> str:
        """What runs it again."""
        return f"./dev reproduce {self.family} {self.name}" + (" --quick" if self.quick else "")


@dataclass(frozen=True)
class Family:
    """All figures of a family, or the reason why it could not be loaded."""

    name: str
    about: str
    outcomes: list[Outcome] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Tally:
    """How many claims hold, do not, or are for comparison; how many figures failed, or were not run."""

    holds: int
    fails: int
    compared: int
    failed: int
    absent: int

    @property
    def good(self) -> bool:
        """Whether everything ran and every claim holds."""
        return not (self.fails or self.failed or self.absent)


def families() -> list[str]:
    """The families there are: the packages of this folder."""
    return sorted(found.parent.name for found in HOME.glob("*/__init__.py"))


def figures(family: str) -> tuple[Figure, ...]:
    """The figures of a family."""
    return tuple(importlib.import_module(f"papers.{family}").FIGURES)


def collect(folder: Path) -> list[Family]:
    """What lies in a folder of results. A family that cannot be loaded is among them, and says why."""
    found = []
    for name in families():
        try:
            known = figures(name)
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            found.append(Family(name, f"{type(error).__name__}: {error}", failure=trace))
            continue
        about = (importlib.import_module(f"papers.{name}").__doc__ or "").strip()
        found.append(Family(name, about, [read(folder, name, figure) for figure in known]))
    return found


def read(folder: Path, family: str, figure: Figure) -> Outcome:
    """One figure as it lies in the folder."""
    path, plot = folder / family / f"{figure.name}.json", folder / family / f"{figure.name}.png"
    if not path.exists():
        return Outcome(family, figure.name, figure.about)
    claims, facts = load_all(path)
    failure = facts.get("failure", "")
    picture = plot if plot.exists() and not failure else None
    day = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    return Outcome(family, figure.name, figure.about, claims, facts["quick"], facts["seconds"], failure, picture, day)


def tally(found: Sequence[Family]) -> Tally:
    """The sums over some families."""
    outcomes = [outcome for family in found for outcome in family.outcomes]
    verdicts = Counter(claim.holds for outcome in outcomes for claim in outcome.claims)
    failed = sum(bool(outcome.failure) for outcome in outcomes) + sum(bool(family.failure) for family in found)
    absent = sum(outcome.seconds is None for outcome in outcomes)
    return Tally(verdicts[True], verdicts[False], verdicts[None], failed, absent)


def in_short(sums: Tally) -> str:
    """The sums as a sentence."""
    parts = [f"{sums.holds} claims hold", f"{sums.fails} do not", f"{sums.compared} numbers are for comparison"]
    if sums.failed:
        parts.append(f"{sums.failed} figures failed")
    if sums.absent:
        parts.append(f"{sums.absent} were not run")
    return ", ".join(parts) + "."
