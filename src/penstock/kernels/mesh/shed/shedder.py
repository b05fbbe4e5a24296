"""The policies by name, and the one thing that is remembered between rounds: which round it is."""

from __future__ import annotations

import difflib
import json
from typing import Any

from penstock.errors import BadOption, StateDamaged
from penstock.kernels.mesh.shed.cluster import Cluster
from penstock.kernels.mesh.shed.keepw import KeepW
from penstock.kernels.mesh.shed.policy import MatchCounts, Policy
from penstock.kernels.mesh.shed.reservoir import Reservoir
from penstock.kernels.mesh.shed.samplew import SampleW
from penstock.kernels.mesh.shed.topw import TopW

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (KeepW, SampleW, TopW, Cluster)}


def check_policy(name: Any) -> type[Policy]:
    """The class of this name; an error with the allowed ones for any other.

    >>> check_policy("topw").goal
    'max-subset'
    """
    if not isinstance(name, str) or name not in POLICIES:
        near = difflib.get_close_matches(str(name).lower().replace("-", ""), POLICIES, n=1, cutoff=0.5)
        raise BadOption(
            f"shed={name!r} is not a way to shed rows.",
            why="Allowed: "
            + ", ".join(f'"{name}" ({policy.goal}{_matches(policy)})' for name, policy in POLICIES.items())
            + ".",
            do=f'Did you mean shed="{near[0]}"?' if near else "",
        )
    return POLICIES[name]


def make_policy(name: str, matches: MatchCounts | None = None) -> Policy:
    """The policy of this name, with the match counts it may need.

    >>> make_policy("samplew").name
    'samplew'
    """
    kind = check_policy(name)
    if not kind.counts_matches:
        return kind()
    if matches is None:
        raise BadOption(
            f'shed="{name}" needs to know how many table rows each key matches.',
            do='Count them (penstock.models.frequency.Frequencies), or use "keepw" or "samplew".',
        )
    return kind(matches)  # type: ignore[call-arg]


class Shedder:
    """Opens the reservoir of each round, and never the same round twice.

    State and cost
        The number of the round: a few bytes in `head()`. Match counts are the caller's to keep.

    >>> shedder = Shedder(make_policy("samplew"), seed=7)
    >>> shedder.open(100).held, shedder.rounds
    (0, 1)
    """

    def __init__(self, policy: Policy, *, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.rounds = 0

    def open(self, rows: int, *, size: int | None = None, tell_repeats: bool = True) -> Reservoir:
        """The reservoir of the next round, for at most `rows` rows that take up at most `size` in all."""
        self.rounds += 1
        return Reservoir(self.policy, rows, size=size, seed=self.seed, round=self.rounds, tell_repeats=tell_repeats)

    def head(self) -> bytes:
        """What `restore` needs."""
        return json.dumps({"rounds": self.rounds}).encode()

    def restore(self, head: bytes) -> None:
        """Go on where the shedder that returned this head stood."""
        try:
            self.rounds = int(json.loads(head)["rounds"])
        except (ValueError, KeyError, TypeError) as fault:
            raise StateDamaged(
                "The state of a shedder cannot be read.",
                why=f"It is {head[:40]!r}: {fault}.",
                do="Restore the checkpoint from a copy, or start with a new one.",
            ) from fault


def _matches(policy: type[Policy]) -> str:
    return ", by match counts" if policy.counts_matches else ""
