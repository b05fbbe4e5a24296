"""The figures of range subscriptions at a reduced size: what is counted must hold; what is timed need only be there."""

from __future__ import annotations

import numpy as np
import pytest

from papers.subscriptions import server_time, traffic
from papers.subscriptions.network import Interest, Load, Network, multicast
from papers.subscriptions.traffic import Size, World, quotes
from papers.subscriptions.workload import Subscriptions, Walk, engine_of, messages_of

SMALL = Size(nodes=400, gateways=30, subscriptions=3_000, rows=1_500, events=300, crowd=25)


@pytest.fixture(scope="module")
def spikes() -> list[traffic.Point]:
    world = World.of(SMALL, *Subscriptions(SMALL.subscriptions).draw())
    return [world.play(share, *Walk(SMALL.rows, SMALL.events, spikes=share).draw()) for share in (0.0, 0.02)]


def test_about_two_messages_an_update_whatever_the_size():
    for rows in (1_000, 20_000):
        table, events = Walk(rows, 20_000).draw()
        assert 1.95 < len(messages_of(engine_of(table), events)) / 20_000 < 2.15


def test_a_walk_stays_in_its_domain_and_its_steps_are_no_longer_than_they_may_be():
    _, events = Walk(50, 3_000, spikes=0, ignorable=0.3, step=0.1).draw()
    old, new = events[:, 3], events[:, 5]
    assert new.max() <= 20_000_000
    assert abs(new - old).max() <= 1_000_000
    assert ((old > 10_000_000) == (new > 10_000_000)).all()
    _, events = Walk(50, 3_000, spikes=0).draw()
    assert events[:, 5].min() > 0
    assert events[:, 5].max() <= 10_000_000


def test_no_range_has_a_length_below_zero():
    x1, x2 = Subscriptions(20_000).draw()
    assert (x1 <= x2).all()
    # A normal distribution above zero: 1,288; a few ranges are cut by the ends of the domain.
    assert 1_200 < (x2 - x1).mean() / 1_000 < 1_300


def test_messages_of_the_server_do_not_depend_on_who_subscribes(tmp_path):
    costs = [server_time.measure(1_000, server_time._server(count), count, 6_000) for count in (100, 500, 2_000)]
    claims = {claim.text: claim for claim in server_time.claims_subscriptions(costs)}
    assert claims["messages an update leave S-CN's server, whoever subscribes"].holds
    assert claims["messages an update leave S-UN's server"].holds
    server_time.plot_subscriptions(costs, tmp_path / "a.png")
    assert len(server_time.claims_rows(costs)) == 5
    server_time.plot_mar([(1_000, 1.0, 3), (10_000, 1.2, 4)], tmp_path / "b.png")
    assert [claim.holds for claim in server_time.claims_mar([(1_000, 1.0, 3), (10_000, 2.0, 4)])] == [True, False]
    assert (tmp_path / "a.png").exists()
    assert (tmp_path / "b.png").exists()


def test_traffic_of_the_chapters_network_is_least_and_that_of_cells_more(spikes, tmp_path):
    for point in spikes:
        exact, cells = point.load["S-CN"], point.load["S-CN, cells"]
        assert exact.bytes <= cells.bytes
        assert exact.bytes < point.load["CN"].bytes
        assert exact.hop_bytes > exact.bytes
    assert [claim.holds for claim in traffic.claims_affected(spikes) if "CN is flat" in claim.text] == [True]
    traffic.plot_affected(spikes, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_claims_that_are_not_so_do_not_pass(spikes):
    swapped = [
        traffic.Point(p.at, p.affected, p.share, {**p.load, "S-CN": p.load["CN"], "CN": p.load["S-CN"]}) for p in spikes
    ]
    assert False in [claim.holds for claim in traffic.claims_ignorable(swapped)]


def test_a_message_goes_over_each_link_of_the_tree_once():
    # 0 is the server, 1 hangs below it, 2 and 3 below 1.
    network = Network(np.array([0, 0, 1, 1]), np.array([0, 5, 1, 2]), np.zeros(4, np.int64))
    rows = np.zeros((2, 8), np.int64)
    rows[1, 0] = 1
    found = np.array([[0, 10, 2], [0, 11, 3], [0, 12, 3], [1, 10, 1]])
    load = Load()
    multicast(network, None, rows, 10, 2, load, found)
    assert (load.messages, load.bytes, load.hop_bytes, load.stress) == (4, 40, 10 * (5 + 1 + 2 + 5), 2)


def test_an_update_goes_to_the_gateways_with_a_range_around_it():
    x1, x2 = Subscriptions(2_000).draw()
    interest = Interest.of(x1, x2, 20, 10)
    x = np.array([0, 4_000_000, 5_100_000, 10_000_001])
    want = {(m, int(g)) for m, at in enumerate(x) for g in interest.gateway[(x1 <= at) & (at <= x2)]}
    found = interest.around(x)
    assert {(int(m), int(g)) for m, _, g in found} == want
    assert len(found) == len(want) > 10
    assert (np.diff(found[:, 0]) >= 0).all()


def test_quotes_are_mostly_ignorable():
    table, events = quotes(1_500, 3_000)
    rows = messages_of(engine_of(table), events)
    assert 0.02 < len(np.unique(rows[:, 0])) / 3_000 < 0.4
