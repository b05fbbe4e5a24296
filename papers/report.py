"""All results of a folder as one HTML page that needs nothing beside it: plots are inside, and there is no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from papers.claims import Claim
from papers.results import Family, Outcome, collect, in_short, tally

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6775; --paper: #fff; --rule: #d9dfe6; --soft: #f4f6f9;
  --good: #146c43; --bad: #b3261e; --link: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --dim: #9aa7b5; --paper: #14181d; --rule: #333c47;
  --soft: #1c2229; --good: #6fcf97; --bad: #ff8a80; --link: #8ab4f8; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 75rem;
  margin: 0 auto; padding: 1.5rem; }
a { color: var(--link); }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--rule); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--rule); }
th { background: var(--soft); }
.wide { overflow-x: auto; }
.holds { color: var(--good); font-weight: 600; white-space: nowrap; }
.fails { color: var(--bad); font-weight: 600; white-space: nowrap; }
.dim { color: var(--dim); }
figure { margin: 1.5rem 0; }
img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--rule); border-radius: 4px; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; font-size: .8rem; }
code { font-size: .9em; }
"""
_MARKS = {True: '<td class="holds">holds</td>', False: '<td class="fails">does not hold</td>', None: "<td></td>"}


def write(folder: Path) -> Path:
    """Write `report.html` into a folder of results, over what lies in it; gives its path."""
    path = folder / "report.html"
    folder.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(_page(collect(folder))), encoding="utf-8")
    fresh.replace(path)
    return path


def _page(found: Sequence[Family]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>The papers' claims, checked</title><style>{_STYLE}</style></head><body>"
    yield "<h1>The papers' claims, checked</h1>"
    yield f"<p><strong>{in_short(tally(found))}</strong> A number for comparison is one that the paper gives without "
    yield "a claim. Every figure says the command that runs it again; <code>--quick</code> is a reduced size.</p>"
    yield from _summary(found)
    yield '<h2 id="claims">All claims</h2><div class="wide"><table>'
    yield "<tr><th>figure</th><th>claim</th><th>paper</th><th>here</th><th>verdict</th></tr>"
    for family in found:
        for outcome in family.outcomes:
            for claim in outcome.claims:
                yield _row(claim, outcome)
    yield "</table></div>"
    for family in found:
        yield f'<h2 id="{_text(family.name)}">{_text(family.name)}</h2><p>{_text(family.about)}</p>'
        if family.failure:
            yield f'<p class="fails">This family could not be loaded.</p><pre>{_text(family.failure)}</pre>'
        for outcome in family.outcomes:
            yield from _figure(outcome)
    yield "</body></html>"


def _summary(found: Sequence[Family]) -> Iterator[str]:
    yield '<div class="wide"><table><tr><th>family</th><th>claims that hold</th><th>that do not</th>'
    yield "<th>for comparison</th><th>figures that failed</th><th>not run</th></tr>"
    for family in found:
        sums = tally([family])
        numbers = (sums.holds, sums.fails, sums.compared, sums.failed, sums.absent)
        cells = "".join(f"<td>{number or ''}</td>" for number in numbers)
        yield f'<tr><td><a href="#{_text(family.name)}">{_text(family.name)}</a></td>{cells}</tr>'
    yield "</table></div>"


def _row(claim: Claim, outcome: Outcome) -> str:
    size = " <span class='dim'>(quick)</span>" if outcome.quick else ""
    where = f'<td><a href="#{_anchor(outcome)}">{_text(outcome.family)} {_text(claim.figure)}</a>{size}</td>'
    said = "".join(f"<td>{_text(text)}</td>" for text in (claim.text, claim.paper, claim.ours))
    return f"<tr>{where}{said}{_MARKS[claim.holds]}</tr>"


def _figure(outcome: Outcome) -> Iterator[str]:
    yield f'<figure id="{_anchor(outcome)}"><figcaption><h3>{_text(outcome.name)}: {_text(outcome.about)}</h3>'
    if outcome.seconds is None:
        yield f'<p class="dim">Not run yet: <code>{_text(outcome.command)}</code></p></figcaption>'
    else:
        yield f'<p class="dim"><code>{_text(outcome.command)}</code> ran for {outcome.seconds:g} s</p></figcaption>'
    if outcome.failure:
        yield f'<p class="fails">It failed:</p><pre>{_text(outcome.failure)}</pre>'
    if outcome.plot:
        image = base64.b64encode(outcome.plot.read_bytes()).decode()
        yield f'<img alt="{_text(outcome.about)}" src="data:image/png;base64,{image}">'
    yield "</figure>"


def _anchor(outcome: Outcome) -> str:
    return _text(f"{outcome.family}-{outcome.name}")


def _text(text: str) -> str:
    return html.escape(text)
