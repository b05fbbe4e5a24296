"""FlowExpect: keep what is worth most over the next steps, by a flow of least expected cost, solved anew at each step.

A yardstick, not a policy to use: it costs a flow problem a step, and is not optimal either, because it considers only
sequences of decisions that are fixed beforehand (003 §3.3.4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
_SCALE = 1_000_000


class Decision(NamedTuple):
    """What to keep of the candidates, and what that is expected to give."""

    keep: list[int]
    expected: float


def flow_expect(candidates: F64, arrivals: F64, memory: int) -> Decision:
    """Which `memory` of the candidates to keep now.

    `candidates[c, d]` is the probability that candidate c meets a partner d + 1 steps from now. `arrivals[a, s, d]` is
    the same for the row that comes s + 1 steps from now on side a (0 or 1), with partners d + 1 steps from now; only d
    > s counts. The flow graph is that of 003 §3.3.1.

    >>> flow_expect(np.array([[0.0, 0.8], [0.5, 0.0]]), np.zeros((2, 2, 2)), 1)
    Decision(keep=[0], expected=0.8)
    """
    from ortools.graph.python import min_cost_flow

    rows, ahead = candidates.shape
    solver = min_cost_flow.SimpleMinCostFlow()
    source, hubs = 0, 1
    # Hub s: places given back after the results of s + 1 steps from now; the last is the sink.
    sink = hubs + ahead - 1
    node = hubs + ahead
    chosen = []
    for c in range(rows):
        chosen.append(solver.add_arc_with_capacity_and_unit_cost(source, node, 1, 0))
        node = _chain(solver, node, candidates[c], 0, hubs)
    for s in range(ahead - 1):
        for a in range(2):
            solver.add_arc_with_capacity_and_unit_cost(hubs + s, node, 1, 0)
            node = _chain(solver, node, arrivals[a, s], s + 1, hubs)
        # An empty place stays empty.
        solver.add_arc_with_capacity_and_unit_cost(hubs + s, hubs + s + 1, memory, 0)
    solver.add_arc_with_capacity_and_unit_cost(source, hubs, memory, 0)
    solver.set_nodes_supplies(np.array([source, sink]), np.array([memory, -memory]))
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise RuntimeError(f"The flow solver ended with {status}.")
    kept = [c for c, arc in enumerate(chosen) if solver.flow(arc)]
    # Places that nothing is expected of are filled all the same.
    kept += [c for c in range(rows) if c not in kept][: memory - len(kept)]
    return Decision(sorted(kept), -solver.optimal_cost() / _SCALE)


def _chain(solver: object, node: int, chances: F64, begin: int, hubs: int) -> int:
    """A row that is kept from step to step; after each its place may be given to another. The next free node."""
    add = solver.add_arc_with_capacity_and_unit_cost  # type: ignore[attr-defined]
    for step in range(begin, len(chances)):
        gain = -round(float(chances[step]) * _SCALE)
        add(node, node + 1, 1, gain)
        add(node + 1, hubs + step, 1, 0)
        node += 1
    return node + 1
