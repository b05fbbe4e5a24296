"""A large network, simulated: a power-law graph, gateways on some of its nodes, and a tree of them that forwards.

The routing is that of `penstock.broker`: a message touches cells, and goes towards the gateways that have subscribers
in one of them; beside it, that of a network that knows every subscription. A gateway forwards to those of its children
below which someone is interested. What the chapter takes
from another paper is chosen here and said: the graph grows by preferential attachment (two links a node), each gateway
hangs below the nearest one that is closer to the server and has fewer than five children, and subscribers choose their
gateway by interest: those with near ranges share one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from penstock.broker.cells import CellMap, adapt

I64 = npt.NDArray[np.int64]
#: Children of a gateway in the overlay, at the most. The chapter saw at most ten messages leave a node for an update,
#: and a difficult one has several: with three to six children that comes out, with eight or ten it does not.
FAN_OUT = 5


def power_law(nodes: int, seed: int) -> I64:
    """Links of a graph that grows by preferential attachment."""
    rng = np.random.default_rng(seed)
    links = np.zeros((2 * nodes, 2), np.int64)
    ends = np.zeros(4 * nodes, np.int64)
    count = _grow(nodes, rng.random(2 * nodes), links, ends)
    return links[:count]


@njit(cache=True)
def _grow(nodes: int, chances: npt.NDArray[np.float64], links: I64, ends: I64) -> int:
    count, filled = 0, 1
    for node in range(1, nodes):
        for one in range(2):
            # An end of a link that is there: nodes with many links are found more often.
            other = ends[int(chances[2 * node + one] * filled)]
            links[count] = node, other
            count += 1
        for one in range(2):
            ends[filled], ends[filled + 1] = node, links[count - 1 - one, 1]
            filled += 2
    return count


@dataclass
class Network:
    """Gateways as a tree below the server, number 0, with physical hops between parent and child."""

    parent: I64
    hops: I64
    straight: I64

    @classmethod
    def grow(cls, nodes: int, gateways: int, seed: int = 0) -> Network:
        """A graph, gateways on random nodes of it, and the tree."""
        links = power_law(nodes, seed)
        graph = coo_matrix((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(nodes, nodes)).tocsr()
        places = np.random.default_rng(seed + 1).choice(nodes, gateways + 1, replace=False)
        between = np.empty((gateways + 1, gateways + 1), np.int64)
        for start in range(0, gateways + 1, 100):
            some = places[start : start + 100]
            between[start : start + 100] = dijkstra(graph, directed=False, indices=some, unweighted=True)[:, places]
        parent = np.zeros(gateways + 1, np.int64)
        children = np.zeros(gateways + 1, np.int64)
        inside = [0]
        for gateway in np.argsort(between[0, 1:], kind="stable") + 1:
            open_ones = [one for one in inside if children[one] < FAN_OUT]
            nearest = min(open_ones, key=lambda one: between[gateway, one])
            parent[gateway] = nearest
            children[nearest] += 1
            inside.append(int(gateway))
        hops = between[np.arange(gateways + 1), parent]
        return cls(parent, hops, between[0])


@dataclass
class Interest:
    """Who subscribes where: cells of the plane, and the gateways with a subscriber in each."""

    cells: CellMap
    wanted: npt.NDArray[np.bool_]
    gateway: I64
    #: Of each gateway the ranges of its subscribers: x1 in order, and how far those that begin there or before reach.
    reach: list[tuple[I64, I64]]

    @classmethod
    def of(cls, x1: I64, x2: I64, gateways: int, crowd: int) -> Interest:
        """Subscribers with near ranges share a gateway; cells are split until none holds a crowd."""
        homes = CellMap()
        adapt(homes, x1, x2, max(1, len(x1) // gateways))
        numbers = homes.cells_of(x1, x2)
        known, gateway = np.unique(numbers, return_inverse=True)
        gateway = gateway * gateways // max(len(known), gateways) + 1
        cells = CellMap()
        adapt(cells, x1, x2, crowd)
        wanted = np.zeros((len(cells.cells), gateways + 1), np.bool_)
        wanted[cells.cells_of(x1, x2), gateway] = True
        order = np.lexsort((x1, gateway))
        ends = np.searchsorted(gateway[order], np.arange(1, gateways + 1))
        reach = [(x1[part], np.maximum.accumulate(x2[part])) for part in np.split(order, ends)]
        return cls(cells, wanted, gateway, reach)

    def around(self, x: I64) -> I64:
        """(message, -1, gateway) for every gateway with a range around a message's x, by message."""
        found = []
        for gateway, (begins, reaches) in enumerate(self.reach):
            before = np.searchsorted(begins, x, side="right")
            inside = np.flatnonzero(before)
            inside = inside[reaches[before[inside] - 1] >= x[inside]]
            found.append(np.stack([inside, np.full(len(inside), -1), np.full(len(inside), gateway)], axis=1))
        pairs = np.concatenate(found)
        return pairs[np.argsort(pairs[:, 0], kind="stable")]


@dataclass
class Load:
    """What some updates cost the network, summed."""

    events: int = 0
    bytes: int = 0
    hop_bytes: int = 0
    messages: int = 0
    #: The most messages that left one node for one event.
    stress: int = 0

    @property
    def traffic(self) -> float:
        """Bytes an update between nodes of the overlay."""
        return self.bytes / max(self.events, 1)

    @property
    def hops(self) -> float:
        """Bytes an update over physical links."""
        return self.hop_bytes / max(self.events, 1)


@njit(cache=True)
def _climb(parent: I64, hops: I64, m: int, event: int, gateway: int, marks: I64, totals: I64) -> None:
    """One message to one gateway: over all links of the tree that it has not been sent over yet.

    `marks` has for each node the last message that reached it, the last event that it sent for, and how often it did;
    `totals` counts messages, hops, and the most that a node sent for one event.
    """
    at = gateway
    while at != 0 and marks[at, 0] != m:
        marks[at, 0] = m
        above = parent[at]
        if marks[above, 1] != event:
            marks[above, 1], marks[above, 2] = event, 0
        marks[above, 2] += 1
        totals[0] += 1
        totals[1] += hops[at]
        totals[2] = max(totals[2], marks[above, 2])
        at = above


@njit(cache=True)
def _to_gateways(parent: I64, hops: I64, pairs: I64, events: I64, marks: I64, totals: I64) -> None:
    for i in range(len(pairs)):
        m, gateway = pairs[i]
        _climb(parent, hops, m, events[m], gateway, marks, totals)


@njit(cache=True)
def _to_cells(
    parent: I64, hops: I64, pairs: I64, wanted: npt.NDArray[np.bool_], events: I64, marks: I64, totals: I64
) -> None:
    for i in range(len(pairs)):
        m, cell = pairs[i]
        for gateway in range(1, len(parent)):
            if wanted[cell, gateway]:
                _climb(parent, hops, m, events[m], gateway, marks, totals)


def multicast(
    network: Network, interest: Interest, rows: I64, size: int, events: int, load: Load, found: I64 | None = None
) -> None:
    """Messages of `size` bytes down the tree. Column 0 of a row is its event.

    To every gateway with a subscriber in a cell that a message touches, as over our broker; or, with `found` as
    (message, subscription, gateway), to those alone that have a subscriber it concerns, as in a network that knows
    every subscription.
    """
    marks = np.full((len(network.parent), 3), -1, np.int64)
    totals = np.zeros(3, np.int64)
    numbers = rows[:, 0].copy()
    if found is None:
        pairs = interest.cells.route(rows)
        _to_cells(network.parent, network.hops, pairs, interest.wanted, numbers, marks, totals)
    else:
        _to_gateways(network.parent, network.hops, found[:, [0, 2]].copy(), numbers, marks, totals)
    load.events += events
    load.messages += int(totals[0])
    load.bytes += size * int(totals[0])
    load.hop_bytes += size * int(totals[1])
    load.stress = max(load.stress, int(totals[2]))


def unicast(network: Network, found: I64, rows: I64, each: int, head: int, events: int, load: Load) -> None:
    """From the server straight to each gateway: `head` bytes for each event and gateway, `each` for a subscriber.

    `found` is (message, subscription, gateway) for every subscriber concerned.
    """
    gateways = found[:, 2]
    trips = np.unique(np.stack([rows[found[:, 0], 0], gateways], axis=1), axis=0)
    load.events += events
    load.messages += len(trips)
    load.bytes += each * len(found) + head * len(trips)
    load.hop_bytes += int(each * network.straight[gateways].sum() + head * network.straight[trips[:, 1]].sum())
    if len(trips):
        load.stress = max(load.stress, int(np.unique(trips[:, 0], return_counts=True)[1].max()))
