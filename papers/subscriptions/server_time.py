"""Figures 5.6 and 5.7, Tables 5.2 and 5.3: what an update costs the server, and how many messages leave it.

S-CN reformulates an update and is done. S-UN reformulates it, then finds every subscription in the rectangles and puts
together what each gateway is sent. Both do the same updates, one server after the other: S-CN's has no subscriptions,
and S-UN's, looked through in between, would push its table out of the processor's caches. The rising cost of Mar
itself, from 10³ to 10⁷ rows, is a figure of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.subscriptions.workload import I64, Subscriptions, Walk, as_rows, engine_of, messages_of
from penstock.broker.delivery import Unicast

GATEWAYS = 1_000
#: Updates whose messages are handled together, as a micro-batch would.
PIECE = 500


@dataclass(frozen=True)
class Cost:
    """Of one setting: microseconds an update, and messages an update."""

    rows: int
    subscriptions: int
    scn_us: float
    sun_us: float
    scn_messages: float
    sun_messages: float


@dataclass(frozen=True)
class Setting:
    """What is varied, and how much work it is."""

    rows: tuple[int, ...] = (10_000, 20_000, 40_000, 60_000, 80_000, 100_000)
    fixed_subscriptions: int = 500_000
    subscriptions: tuple[int, ...] = (10_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000)
    fixed_rows: int = 10_000
    events: int = 100_000
    mar_rows: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


QUICK = Setting((1_000, 10_000), 20_000, (500, 5_000, 20_000), 5_000, 2_000, (1_000, 10_000, 100_000))


def _server(subscriptions: int) -> Unicast:
    x1, x2 = Subscriptions(subscriptions).draw()
    gateway = np.random.default_rng(2).integers(0, GATEWAYS, subscriptions)
    return Unicast([f"g{n}" for n in range(GATEWAYS)], gateway, x1, x2)


def measure(rows: int, server: Unicast, subscriptions: int, events: int) -> Cost:
    """Both ways over the same updates."""
    table, updates = Walk(rows, events).draw()
    first, rest = updates[:10], updates[10:]
    server.find(messages_of(engine_of(table), first))
    sent = told = 0
    scn = sun = 0.0
    for messages, seconds in _reformulated(table, first, rest):
        sent += len(messages)
        scn += seconds
    for messages, seconds in _reformulated(table, first, rest):
        began = time.process_time()
        parcels = list(server.parcels(messages))
        sun += seconds + time.process_time() - began
        told += sum(len(parcel.rows) for parcel in parcels)
    count = len(rest)
    return Cost(rows, subscriptions, scn / count * 1e6, sun / count * 1e6, sent / count, told / count)


def _reformulated(table: I64, first: I64, rest: I64) -> Iterator[tuple[I64, float]]:
    """The messages of each piece, from a server that knows the table, and the seconds that they took."""
    engine = engine_of(table)
    messages_of(engine, first)
    for start in range(0, len(rest), PIECE):
        began = time.process_time()
        found = [part.copy() for part in engine.apply(rest[start : start + PIECE])]
        seconds = time.process_time() - began
        yield np.concatenate([as_rows(part) for part in found]), seconds


def run_rows(quick: bool, say: Say) -> list[Cost]:
    """Over the size of the table."""
    setting = QUICK if quick else Setting()
    say(f"{setting.fixed_subscriptions:,} subscriptions")
    server = _server(setting.fixed_subscriptions)
    return _each(
        setting.rows, say, lambda rows: measure(rows, server, setting.fixed_subscriptions, setting.events), "rows"
    )


def run_subscriptions(quick: bool, say: Say) -> list[Cost]:
    """Over the number of subscriptions."""
    setting = QUICK if quick else Setting()
    return _each(
        setting.subscriptions,
        say,
        lambda count: measure(setting.fixed_rows, _server(count), count, setting.events),
        "subscriptions",
    )


def _each(sizes: Sequence[int], say: Say, work: Callable[[int], Cost], what: str) -> list[Cost]:
    found = []
    for size in sizes:
        say(f"{size:,} {what}")
        found.append(work(size))
    return found


def claims_rows(costs: Sequence[Cost]) -> Sequence[Claim]:
    """Of Figure 5.6 and Table 5.2."""
    first, last = costs[0], costs[-1]
    growth, times = last.scn_us / first.scn_us, last.rows / first.rows
    return [
        Claim(
            "figure5.6",
            f"S-CN: time for {times:.0f} times the rows; a larger tree waits longer for memory",
            "+20%",
            f"{growth - 1:+.0%} ({first.scn_us:.1f} to {last.scn_us:.1f} µs)",
            # A quarter of the chapter's growth more: what two runs on one machine differ by.
            growth < 1.25,
        ),
        Claim(
            "figure5.6",
            "S-CN costs least at every size",
            "yes",
            f"S-UN : S-CN {first.sun_us / first.scn_us:.1f} to {last.sun_us / last.scn_us:.1f}",
            all(c.scn_us < c.sun_us for c in costs),
        ),
        Claim(
            "figure5.6",
            f"S-UN against S-CN at {first.rows:,} rows",
            "3.5 times",
            f"{first.sun_us / first.scn_us:.1f} times",
            first.sun_us / first.scn_us > 2.8,
        ),
        Claim(
            "table5.2",
            "messages an update leave S-CN's server; steps have the length that gives Table 5.3's 2.08",
            "2.10 to 2.22",
            f"{first.scn_messages:.2f} to {last.scn_messages:.2f}",
            all(1.95 < c.scn_messages < 2.35 for c in costs),
        ),
        Claim(
            "table5.2",
            "messages an update leave S-UN's server",
            "726 to 654, falling",
            f"{first.sun_messages:.0f} to {last.sun_messages:.0f}",
            all(600 < c.sun_messages * 500_000 / c.subscriptions < 800 for c in costs)
            and last.sun_messages < first.sun_messages,
        ),
    ]


def claims_subscriptions(costs: Sequence[Cost]) -> Sequence[Claim]:
    """Of Figure 5.7 and Table 5.3."""
    # The fewest are for S-CN; of S-UN with so few, most is what an update costs without any.
    fewest, first, *_, last = costs
    times = last.subscriptions / first.subscriptions
    scn = np.array([c.scn_us for c in costs])
    ratio = last.sun_messages / first.sun_messages
    return [
        Claim(
            "figure5.7",
            f"S-CN: time from {fewest.subscriptions:,} to {last.subscriptions:,} subscriptions",
            "the same",
            f"{scn.min():.1f}–{scn.max():.1f} µs, last : first {scn[-1] / scn[0]:.2f}",
            bool(scn[-1] / scn[0] < 1.15),
        ),
        Claim(
            "figure5.7",
            f"S-UN: time for {times:.0f} times the subscriptions",
            "linear",
            f"{last.sun_us / first.sun_us:.1f} times ({first.sun_us:.1f} to {last.sun_us:.1f} µs)",
            last.sun_us / first.sun_us > times / 2,
        ),
        Claim(
            "table5.3",
            "messages an update leave S-CN's server, whoever subscribes",
            "2.08",
            f"{first.scn_messages:.2f}",
            len({c.scn_messages for c in costs}) == 1 and 1.95 < first.scn_messages < 2.2,
        ),
        Claim(
            "table5.3",
            "messages an update leave S-UN's server",
            "303 at 200,000 to 1,441 at a million: linear",
            f"{first.sun_messages:.0f} to {last.sun_messages:.0f}, {ratio:.1f} times",
            0.7 * times < ratio < 1.3 * times,
        ),
    ]


def plot_rows(costs: Sequence[Cost], path: Path) -> None:
    """Figure 5.6."""
    _plot(costs, [c.rows for c in costs], "rows of the table", "003, Figure 5.6", path)


def plot_subscriptions(costs: Sequence[Cost], path: Path) -> None:
    """Figure 5.7."""
    _plot(costs, [c.subscriptions for c in costs], "subscriptions", "003, Figure 5.7", path)


def _plot(costs: Sequence[Cost], sizes: list[int], label: str, title: str, path: Path) -> None:
    canvas = Canvas(figsize=(9, 3.8), layout="constrained")
    left, right = canvas.subplots(1, 2)
    for panel, scn, sun in (
        (left, [c.scn_us for c in costs], [c.sun_us for c in costs]),
        (right, [c.scn_messages for c in costs], [c.sun_messages for c in costs]),
    ):
        panel.plot(sizes, sun, "s-", label="S-UN")
        panel.plot(sizes, scn, "o-", label="S-CN")
        panel.set(xlabel=label, ylim=(0, None))
        panel.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("server time (µs an update)")
    right.set(ylabel="messages an update", yscale="log")
    right.set_ylim(1, None)
    left.legend(frameon=False)
    canvas.suptitle(f"What an update costs the server: {title}", fontsize=11)
    canvas.savefig(path, dpi=110)


def run_mar(quick: bool, say: Say) -> list[tuple[int, float, int]]:
    """Microseconds for Mar and levels of the tree, by the size of the table."""
    from penstock.kernels.subscriptions.a2btree import A2BTree

    setting, asked, found = (QUICK if quick else Setting()), 50_000, []
    for rows in setting.mar_rows:
        say(f"{rows:,} rows")
        rng = np.random.default_rng(rows)
        tree = A2BTree()
        places = rng.integers(0, 2**40, rows)
        tree.extend(np.stack([np.zeros(rows, np.int64), places, rng.integers(0, 2**40, rows)], axis=1))
        questions = np.stack([rng.choice(places, asked) + 1, rng.integers(0, 2**40, asked)], axis=1)
        _ask(tree.nodes, questions[:10])
        began = time.process_time()
        _ask(tree.nodes, questions)
        found.append((rows, (time.process_time() - began) / asked * 1e6, tree.levels))
    return found


def _ask(nodes: object, questions: I64) -> int:
    from papers.subscriptions.many_mars import ask

    return int(ask(nodes, questions))


def claims_mar(found: Sequence[tuple[int, float, int]]) -> Sequence[Claim]:
    """§5.3.1: logarithmic."""
    (small, first, few), (large, last, many) = found[0], found[-1]
    log = float(np.log(large) / np.log(small))
    return [
        Claim(
            "mar",
            f"Mar in O(log N): nodes on a way down from {small:,} to {large:,} rows (a search looks at two a level)",
            f"{log:.1f} times by the logarithm",
            f"{many / few:.1f} times ({few} to {many})",
            many / few <= log,
        ),
        Claim(
            "mar",
            f"Mar in O(log N): processor time from {small:,} to {large:,} rows, of which the most outgrow the cache",
            f"{log:.1f} times by the logarithm",
            f"{last / first:.1f} times ({first:.2f} to {last:.2f} µs), rows {large / small:,.0f} times",
            last / first <= 1.25 * log,
        ),
    ]


def plot_mar(found: Sequence[tuple[int, float, int]], path: Path) -> None:
    """A straight line over a logarithmic axis."""
    canvas = Canvas(figsize=(5, 3.8), layout="constrained")
    panel = canvas.subplots()
    panel.plot([rows for rows, _, _ in found], [us for _, us, _ in found], "o-")
    panel.set(xscale="log", xlabel="rows of the table", ylabel="µs for one Mar", ylim=(0, None))
    panel.spines[["top", "right"]].set_visible(False)
    canvas.suptitle("Mar by the A2B-tree: 003, §5.3.1", fontsize=11)
    canvas.savefig(path, dpi=110)


FIGURES = (
    Figure(
        "figure5.6", "server time and messages over the size of the table; Table 5.2", run_rows, claims_rows, plot_rows
    ),
    Figure(
        "figure5.7",
        "server time and messages over the number of subscriptions; Table 5.3",
        run_subscriptions,
        claims_subscriptions,
        plot_subscriptions,
    ),
    Figure("mar", "time of one Mar from 10³ to 10⁷ rows", run_mar, claims_mar, plot_mar),
)
