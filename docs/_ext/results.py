"""`./dev docs --results`: the pages of results, made from what `./dev reproduce` and `./dev bench` have left.

A figure at full size is taken before one at the size of --quick, and of several measurements of a benchmark the last.
What was not run again stays as an earlier run left it; what is no figure or benchmark any more goes. Nothing
else goes into these pages, and each number stands beside the command that made it and the day.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Canvas
from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = ROOT / "docs" / "results"
IMAGES = PAGES / "images"
sys.path.insert(0, str(ROOT))

from benchmarks.__main__ import ALL  # noqa: E402
from benchmarks.report import quantity, rows_per_second  # noqa: E402
from papers.results import RESULTS, Family, Outcome, Tally, collect, in_short  # noqa: E402

CHECKED = """# The papers' claims, checked

Every figure of the papers that Penstock is made from, run again by `./dev reproduce`: what the paper says, what was
found here, and whether it holds. Claims that do not hold are among them. A number without a verdict is there for
comparison alone. Figures whose command has `--quick` were run at a reduced size; machines, and so absolute numbers,
differ from the papers'.
"""
MEASURED = """# How fast it is

What `./dev bench` left, each beside the command that measures it again. Contestants take turns over the same work, and
every contestant's results are checked; [how it measures](../project/benchmarks.md). Seconds and rates belong to a
machine and to what else it did: trust processor seconds and ratios first. A goal that is not met is said so.
"""
MARKS = {True: "holds", False: "**does not hold**", None: ""}


def main() -> None:
    """Write both pages anew."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    checked, measured = PAGES / "reproduce.md", PAGES / "bench.md"
    families = collect(RESULTS)
    texts = {f"{family}/{name}": text for family, name, text in figures_on(read(checked))}
    for one in best(families, collect(RESULTS / "quick")):
        name = f"{one.family}/{one.name}"
        if not one.quick or "--quick`" in texts.get(name, "--quick`"):
            texts[name] = "\n".join(figure(one))
    text = "\n".join(reproduced(families, texts))
    checked.write_text(text + "\n")
    known = {benchmark.name for module in ALL for benchmark in module.benchmarks(quick=False)}
    sections = dict(sections_of(read(measured), "##"))
    sections |= {one[0]["name"]: "\n".join(measurement(*one)) for one in newest(ROOT / "benchmarks" / "results")}
    measured.write_text("\n".join([MEASURED, *(sections[name] for name in sorted(sections) if name in known)]) + "\n")
    shown = read(checked) + read(measured)
    for picture in IMAGES.glob("*.png"):
        if f"images/{picture.name})" not in shown:
            picture.unlink()
    print(f"docs/results: {in_short(counted(text))}")  # noqa: T201


def read(page: Path) -> str:
    """A page as it is, if it is there."""
    return page.read_text() if page.exists() else ""


def sections_of(page: str, mark: str) -> Iterator[tuple[str, str]]:
    """The sections below headings of a level, by name (what stands before a colon), with their headings."""
    heads = list(re.finditer(rf"^{mark} ([^:\n]+).*$", page, re.MULTILINE))
    ends = [head.start() for head in heads[1:]] + [len(page)]
    return ((head[1].strip(), "\n" + page[head.start() : end].rstrip()) for head, end in zip(heads, ends, strict=True))


# ---------------------------------------------------------------- papers


def best(full: Sequence[Family], quick: Sequence[Family]) -> list[Outcome]:
    """Of two folders of results, figure by figure, the one at full size if there is one; figures that never ran go."""
    small = {(one.family, one.name): one for family in quick for one in family.outcomes}
    every = (choose(one, small.get((one.family, one.name))) for family in full for one in family.outcomes)
    return [one for chosen in every for one in chosen]


def choose(*both: Outcome | None) -> list[Outcome]:
    """The better of two outcomes, if either is one."""
    ran = [one for one in both if one is not None and one.seconds is not None and not one.failure]
    return sorted(ran, key=lambda one: bool(one.quick))[:1]


def figures_on(page: str) -> Iterator[tuple[str, str, str]]:
    """The figures on a page: (family, name, text)."""
    for family, text in sections_of(page, "##"):
        yield from ((family, name, figure) for name, figure in sections_of(text, "###"))


def counted(text: str) -> Tally:
    """The sums over the claims of a text."""
    verdicts = re.findall(r"^\|.*\| (holds|\*\*does not hold\*\*|) ?\|$", text, re.MULTILINE)
    headings = text.count("| claim | paper | here | |")
    return Tally(verdicts.count("holds"), verdicts.count(MARKS[False]), verdicts.count("") - headings, 0, 0)


def reproduced(families: Iterable[Family], texts: Mapping[str, str]) -> Iterator[str]:
    """The page of the papers' claims."""
    shown = [
        (family, "\n".join(texts[name] for one in family.outcomes if (name := f"{one.family}/{one.name}") in texts))
        for family in families
    ]
    yield CHECKED
    sums = counted("\n".join(text for _, text in shown))
    yield f"**{in_short(sums)}** `./dev reproduce` writes the same as one page with all plots,"
    yield "`papers/results/report.html`."
    yield ""
    yield "| family | hold | do not | for comparison |"
    yield "|---|---|---|---|"
    for family, text in shown:
        sums = counted(text)
        yield f"| [{family.name}](#{family.name}) | {sums.holds} | {sums.fails} | {sums.compared} |"
    for family, text in shown:
        yield f"\n## {family.name}\n\n{family.about}\n{text}"


def figure(outcome: Outcome) -> Iterator[str]:
    """One figure: plot, command, claims."""
    yield ""
    yield f"### {outcome.name}: {outcome.about}"
    yield ""
    if outcome.plot:
        name = f"{outcome.family}-{outcome.name}.png"
        smaller(outcome.plot, IMAGES / name)
        yield f"![{outcome.about}](images/{name})"
        yield ""
    yield f"`{outcome.command}` · {outcome.day}"
    yield ""
    yield "| claim | paper | here | |"
    yield "|---|---|---|---|"
    for claim in outcome.claims:
        yield (
            "| "
            + " | ".join(cell(text) for text in (claim.text, claim.paper, claim.ours))
            + f" | {MARKS[claim.holds]} |"
        )


def cell(text: str) -> str:
    """Text that may stand in a table of Markdown."""
    for sign in ("|", "*", "_", "<"):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def smaller(plot: Path, target: Path) -> None:
    """The plot with few colours: a third of the size, and nobody sees it."""
    with Image.open(plot) as image:
        image.convert("RGB").quantize(48, dither=Image.Dither.NONE).save(target, optimize=True)


# ---------------------------------------------------------------- benchmarks


def newest(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """The last measurement of each benchmark at full size with all contestants: (benchmark, settings, machine)."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {}
    for path in sorted(folder.glob("*Z-*.json")):  # a soak leaves its numbers there, too
        kept = json.loads(path.read_text())
        if not kept["settings"]["quick"] and not kept["settings"]["only"]:
            found |= {one["name"]: (one, kept["settings"], kept["machine"]) for one in kept["benchmarks"]}
    return [found[name] for name in sorted(found)]


def measurement(benchmark: dict[str, Any], settings: dict[str, Any], machine: dict[str, Any]) -> Iterator[str]:
    """One benchmark: command, machine, plot, contestants, claims."""
    name = benchmark["name"]
    yield ""
    yield f"## {name}"
    yield ""
    yield cell(benchmark["about"]) + "."
    yield ""
    load = machine["load_average"][0]
    packages = ", ".join(
        f"{one} {machine['packages'][one]}" for one in ("pyspark", "pyarrow", "numpy") if one in machine["packages"]
    )
    command = f"`./dev bench {name} --reps {settings['reps']}`"
    day = machine["time"][:10]
    yield f"{command} · {day}, {machine['cores']} cores, load {load:g} at the start, {packages}"
    yield ""
    picture = f"bench-{name.replace('/', '-')}.png"
    draw(benchmark, IMAGES / picture)
    yield f"![Rows a second of each contestant](images/{picture})"
    yield ""
    yield "| contestant | seconds, median | rows/s, median | processor seconds |"
    yield "|---|---|---|---|"
    for one in benchmark["contestants"]:
        busy = f"{one['busy_seconds']['median']:.3g}" if one["busy_seconds"] else ""
        rate = rows_per_second(one["rows_per_second"]["median"])
        yield f"| {cell(one['name'])} | {one['seconds']['median']:.3g} | {rate} | {busy} |"
    for missing, reason in benchmark["missing"].items():
        yield f"| {cell(missing)} | not run: {cell(reason)} | | |"
    if benchmark["claims"]:
        yield ""
        yield "| goal | measured | wanted | |"
        yield "|---|---|---|---|"
        for claim in benchmark["claims"]:
            yield verdict(claim)


def verdict(claim: dict[str, Any]) -> str:
    """A goal as a row of its table."""
    sign, unit = "≤" if claim["unit"] == "s" else "≥", claim["unit"]
    goal = f"{sign} {amount(claim['goal'], unit)}" if claim["goal"] is not None else ""
    met = {True: "met", False: "**not met**", None: ""}[claim["met"]]
    return f"| {cell(claim['text'])} | {amount(claim['value'], unit)} | {goal} | {met} |"


def amount(value: float, unit: str) -> str:
    """A value with its unit; large ratios without an exponent."""
    return f"{value:,.0f} ×" if unit == "×" and value >= 1000 else quantity(value, unit)


def draw(benchmark: dict[str, Any], target: Path) -> None:
    """Rates of all contestants as bars, with quartiles."""
    contestants = benchmark["contestants"][::-1]
    canvas = Canvas(figsize=(8, 0.5 * len(contestants) + 1.0), layout="constrained")
    panel = canvas.subplots()
    rates = [one["rows_per_second"] for one in contestants]
    middle = [rate["median"] for rate in rates]
    spread = [
        [rate["median"] - rate["first_quartile"] for rate in rates],
        [rate["third_quartile"] - rate["median"] for rate in rates],
    ]
    colours = ["#1f5fbf" if one["name"].startswith("Penstock") else "#9aa7b5" for one in contestants]
    panel.barh([one["name"] for one in contestants], middle, xerr=spread, color=colours, height=0.6, ecolor="#1c2430")
    panel.set_xlabel("rows a second: median, quartiles")
    if max(middle) > 50 * min(middle):
        panel.set_xscale("log")
    panel.spines[["top", "right"]].set_visible(False)
    canvas.savefig(target, dpi=100)
    smaller(target, target)


if __name__ == "__main__":
    main()
