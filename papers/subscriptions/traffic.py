"""Figures 5.8, 5.9 and 5.10: bytes that travel between the nodes of an overlay for an update, by way of delivery.

Sizes: 8 bytes a field. S-CN's message is the new minimum and the rectangle, 40 bytes; CN's is the update, 24; S-UN
sends each gateway one message an update, 8 bytes and 16 for every subscriber concerned. In all three the network knows
every subscription. The chapter does not say how many rows Figure 5.8 has; here they are 10,000, as in Figure 5.7, and
S-UN begins above CN, as it must to beat it "eventually". With 50,000 it is below from the start. Figure 5.10's trace of
quotes is not to be had; a generator stands for it: 3,053 stocks with a recommendation to two digits, prices that walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from papers.claims import Claim
from papers.figure import Figure, Say
from papers.subscriptions.network import FAN_OUT, Interest, Load, Network, multicast, unicast
from papers.subscriptions.workload import BOTH, I64, Subscriptions, Walk, engine_of, messages_of
from penstock.broker.delivery import Unicast
from penstock.broker.messages import INNER_LEFT
from penstock.kernels.subscriptions import mar

S_CN_BYTES, CN_BYTES, S_UN_EACH, S_UN_HEAD = 40, 24, 16, 8
#: As in the chapter, whose network knows every subscription; and S-CN over cells, as it goes over our broker.
WAYS = ("S-UN", "CN", "S-CN", "S-CN, cells")


@dataclass(frozen=True)
class Size:
    """How large the network is, and how much happens on it."""

    nodes: int = 20_000
    gateways: int = 1_000
    subscriptions: int = 500_000
    rows: int = 50_000
    fewer_rows: int = 10_000
    events: int = 2_500
    crowd: int = 120


QUICK = Size(1_500, 80, 12_000, 4_000, 800, 600, 40)


@dataclass(frozen=True)
class Point:
    """One setting: where it is on the axis, and what each way costs."""

    at: float
    affected: float
    share: float
    load: dict[str, Load]


@lru_cache(maxsize=2)
def _network(nodes: int, gateways: int) -> Network:
    return Network.grow(nodes, gateways)


@dataclass
class World:
    """A network and its subscribers."""

    network: Network
    interest: Interest
    server: Unicast

    @classmethod
    def of(cls, size: Size, x1: I64, x2: I64) -> World:
        """With these subscriptions."""
        network = _network(size.nodes, size.gateways)
        interest = Interest.of(x1, x2, size.gateways, size.crowd)
        names = [str(n) for n in range(size.gateways + 1)]
        return cls(network, interest, Unicast(names, interest.gateway, x1, x2))

    def play(self, at: float, table: I64, events: I64) -> Point:
        """All three ways over the same updates."""
        exact, relaxed = engine_of(table), engine_of(table, "sum")
        load = {way: Load() for way in WAYS}
        affected = told = 0
        for start in range(0, len(events), 200):
            piece = events[start : start + 200]
            messages, updates = messages_of(exact, piece), messages_of(relaxed, piece)
            found = self.server.find(messages)
            affected += len(found)
            told += len(np.unique(messages[:, 0]))
            multicast(self.network, self.interest, messages, S_CN_BYTES, len(piece), load["S-CN"], found)
            multicast(self.network, self.interest, messages, S_CN_BYTES, len(piece), load["S-CN, cells"])
            near = self.interest.around(updates[:, INNER_LEFT])
            multicast(self.network, self.interest, updates, CN_BYTES, len(piece), load["CN"], near)
            unicast(self.network, found, messages, S_UN_EACH, S_UN_HEAD, len(piece), load["S-UN"])
        return Point(at, affected / len(events), told / len(events), load)


def run_ignorable(quick: bool, say: Say) -> list[Point]:
    """Figure 5.8: over the share of ignorable updates; short ranges everywhere, no spikes."""
    size = QUICK if quick else Size()
    say("the network")
    world = World.of(size, *Subscriptions(size.subscriptions, (5_000, 10_000), (50, 10)).draw())
    found = []
    for share in (0.0, 0.25, 0.5, 0.75, 0.95):
        say(f"{share:.0%} ignorable")
        found.append(world.play(share, *Walk(size.fewer_rows, size.events, spikes=0, ignorable=share).draw()))
    return found


def run_affected(quick: bool, say: Say) -> list[Point]:
    """Figure 5.9: over the number of subscriptions that an update affects, by the share of spikes."""
    size = QUICK if quick else Size()
    say("the network")
    world = World.of(size, *Subscriptions(size.subscriptions).draw())
    found = []
    for spikes in (0.0, 0.0025, 0.005, 0.01):
        say(f"{spikes:.2%} spikes")
        found.append(world.play(spikes, *Walk(size.rows, size.events, spikes=spikes).draw()))
    return found


def run_quotes(quick: bool, say: Say) -> list[Point]:
    """Figure 5.10: over the number of subscriptions, on quotes."""
    size = QUICK if quick else Size()
    counts = (size.subscriptions // 5, size.subscriptions // 2, size.subscriptions)
    table, events = quotes(300 if quick else 3_053, size.events * 2)
    found = []
    for count in counts:
        say(f"{count:,} subscriptions")
        rng = np.random.default_rng(count)
        middle, half = rng.normal(300, 60, count), np.abs(rng.normal(60, 60, count)) / 2
        x1, x2 = (np.clip(end, 100, 500).astype(np.int64) for end in (middle - half, middle + half))
        found.append(World.of(size, x1, x2).play(count, table, events))
    return found


def quotes(stocks: int, events: int, seed: int = 0) -> tuple[I64, I64]:
    """Stocks as (group, recommendation × 100, price-to-earnings × 1000), and two quotes a day of each."""
    rng = np.random.default_rng(seed)
    x = np.clip(np.round(rng.normal(2.4, 0.5, stocks), 2), 1, 5)
    places = np.round(x * 100).astype(np.int64)
    price = rng.lognormal(3.2, 0.6, stocks)
    earnings = price / rng.lognormal(2.9, 0.6, stocks)
    y = (price / earnings * 1_000).astype(np.int64)
    table = np.stack([np.zeros(stocks, np.int64), places, y], axis=1)
    out = np.zeros((events, mar.EVENT_WIDTH), np.int64)
    out[:, mar.HAS] = BOTH
    moves = rng.normal(0, 0.015, events)
    for number in range(events):
        who = number % stocks
        old = y[who]
        price[who] *= np.exp(moves[number])
        y[who] = int(price[who] / earnings[who] * 1_000)
        out[number, 2:] = places[who], old, places[who], y[who]
    return table, out


def _traffic(points: Sequence[Point], way: str) -> list[float]:
    return [point.load[way].traffic for point in points]


def _in_words(points: Sequence[Point], way: str) -> str:
    found = _traffic(points, way)
    return f"{found[0]:,.0f} to {found[-1]:,.0f} bytes"


def _flat(numbers: Sequence[float], within: float) -> bool:
    return max(numbers) <= (1 + within) * min(numbers)


def claims_ignorable(points: Sequence[Point]) -> Sequence[Claim]:
    """Of Figure 5.8."""
    s_cn, cn, s_un = (_traffic(points, way) for way in ("S-CN", "CN", "S-UN"))
    least = all(a <= min(b, c) for a, b, c in zip(s_cn, cn, s_un, strict=True))
    return [
        Claim(
            "figure5.8",
            "S-CN least at every share of ignorable updates",
            "yes",
            _in_words(points, "S-CN"),
            least,
        ),
        Claim(
            "figure5.8", "CN does not know which are ignorable: flat", "flat", _in_words(points, "CN"), _flat(cn, 0.25)
        ),
        Claim(
            "figure5.8",
            "S-UN performs poorly, and beats CN when most are ignorable",
            "yes",
            _in_words(points, "S-UN"),
            s_un[0] > cn[0] and s_un[-1] < cn[-1],
        ),
        Claim(
            "figure5.8",
            "CN is worst when most are ignorable",
            "yes",
            f"{cn[-1] / s_cn[-1]:,.0f} times S-CN",
            cn[-1] > s_cn[-1],
        ),
        _over_cells("figure5.8", points),
    ]


def _over_cells(figure: str, points: Sequence[Point]) -> Claim:
    """What our own network adds: cells are coarser than subscriptions."""
    times = [point.load["S-CN, cells"].traffic / max(point.load["S-CN"].traffic, 1e-9) for point in points]
    words = f"{_in_words(points, 'S-CN, cells')}, {min(times):.1f} to {max(times):.1f} times"
    return Claim(figure, "S-CN over cells, as our broker has it, against exact filters", "", words, None)


def claims_affected(points: Sequence[Point]) -> Sequence[Claim]:
    """Of Figure 5.9."""
    s_cn, cn, s_un = (_traffic(points, way) for way in ("S-CN", "CN", "S-UN"))
    few, many = points[0].affected, points[-1].affected
    axis = f"{few:,.0f} to {many:,.0f} affected"
    return [
        Claim(
            "figure5.9",
            f"S-UN grows with those affected ({axis})",
            "linear",
            _in_words(points, "S-UN"),
            s_un[-1] > 2 * s_un[0],
        ),
        Claim("figure5.9", "CN is flat", "flat", _in_words(points, "CN"), _flat(cn, 0.25)),
        Claim(
            "figure5.9",
            "S-CN rises very slightly",
            "slightly",
            f"{_in_words(points, 'S-CN')}, {(s_cn[-1] - s_cn[0]) / cn[0]:.0%} of CN's",
            s_cn[-1] - s_cn[0] < 0.1 * cn[0],
        ),
        Claim(
            "figure5.9",
            "S-CN close to an order below CN",
            "10 times",
            f"{cn[-1] / s_cn[-1]:.1f} times at the most spikes, {cn[0] / s_cn[0]:.0f} without",
            cn[-1] > 8 * s_cn[-1],
        ),
        _over_cells("figure5.9", points),
    ]


def claims_quotes(points: Sequence[Point]) -> Sequence[Claim]:
    """Of Figure 5.10."""
    s_cn, cn, s_un = (_traffic(points, way) for way in ("S-CN", "CN", "S-UN"))
    stress = max(point.load["S-CN"].stress for point in points)
    return [
        Claim("figure5.10", "share of updates that are not ignorable", "11.7%", f"{points[-1].share:.1%}", None),
        Claim(
            "figure5.10",
            "S-UN grows with the number of subscriptions",
            "linear",
            _in_words(points, "S-UN"),
            s_un[-1] > 2 * s_un[0],
        ),
        Claim("figure5.10", "CN is constant and bad", "constant", _in_words(points, "CN"), _flat(cn, 0.5)),
        Claim(
            "figure5.10",
            "S-CN hardly depends on the number of subscriptions",
            "independent",
            _in_words(points, "S-CN"),
            _flat(s_cn, 0.5),
        ),
        Claim("figure5.10", "S-CN: bytes an update", "below 100", f"{s_cn[-1]:,.0f}", s_cn[-1] < 100),
        Claim(
            "figure5.10",
            "S-CN: orders of magnitude below CN",
            "yes",
            f"{cn[-1] / s_cn[-1]:,.0f} times",
            cn[-1] > 10 * s_cn[-1],
        ),
        Claim(
            "figure5.10",
            "S-CN: most messages that leave a node for an update; it sends each message to each interested child",
            "at most 10",
            f"{stress}, with a fan-out of {FAN_OUT}",
            stress <= 10,
        ),
        _over_cells("figure5.10", points),
    ]


def _plot(points: Sequence[Point], axis: list[float], label: str, title: str, path: Path) -> None:
    canvas = Canvas(figsize=(5.4, 3.9), layout="constrained")
    panel = canvas.subplots()
    for way, mark in zip(WAYS, "s^ox", strict=True):
        panel.plot(axis, _traffic(points, way), f"{mark}-", label=way)
    panel.set(xlabel=label, ylabel="bytes between gateways an update", yscale="log")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    canvas.suptitle(f"Network traffic: {title}", fontsize=11)
    canvas.savefig(path, dpi=110)


def plot_ignorable(points: Sequence[Point], path: Path) -> None:
    """Figure 5.8."""
    _plot(points, [100 * point.at for point in points], "ignorable updates (%)", "003, Figure 5.8", path)


def plot_affected(points: Sequence[Point], path: Path) -> None:
    """Figure 5.9."""
    _plot(points, [point.affected for point in points], "subscriptions affected by an update", "003, Figure 5.9", path)


def plot_quotes(points: Sequence[Point], path: Path) -> None:
    """Figure 5.10."""
    _plot(points, [point.at for point in points], "subscriptions", "003, Figure 5.10", path)


FIGURES = (
    Figure("figure5.8", "traffic over the share of ignorable updates", run_ignorable, claims_ignorable, plot_ignorable),
    Figure("figure5.9", "traffic over the subscriptions affected", run_affected, claims_affected, plot_affected),
    Figure("figure5.10", "traffic and node stress on quotes", run_quotes, claims_quotes, plot_quotes),
)
