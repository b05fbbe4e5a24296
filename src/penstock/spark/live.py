"""The kernels that a worker keeps alive from one micro-batch to the next, so that they need not be restored."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from penstock.kernels.contract import Kernel

#: What may be kept beside a kernel that holds next to nothing.
_LITTLE = 1 << 20


class _Kept(NamedTuple):
    token: str
    batch: int
    kernel: Kernel


class LiveKernels:
    """Kernels by query and state, each with the token of the stored state that it stands for.

    Spark gives a slot to any worker that is free. A worker that gets one it does not have knows by it that slots have
    moved. It lets go of those that it has not stepped in this micro-batch: another worker builds them again, and both
    together would hold twice the budget.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, query: str, state: str, token: str, batch: int) -> Kernel | None:
        """The kernel, if it stands for the stored state. While it steps it is not kept: if the task fails, what is left
        of it must not be found again.
        """
        kept = self._kept.pop((query, state), None)
        if kept is not None and kept.token == token:
            return kept.kernel
        for key in [key for key, other in self._kept.items() if key[0] == query and other.batch != batch]:
            del self._kept[key]
        return None

    def keep(self, query: str, state: str, token: str, batch: int, kernel: Kernel) -> None:
        """Keep a kernel, and of the older ones as many as hold no more than it may hold itself."""
        allowed = max(kernel.memory(), _LITTLE)
        held = 0
        for old in reversed(list(self._kept)):
            held += self._kept[old].kernel.memory()
            if held > allowed:
                del self._kept[old]
        self._kept[query, state] = _Kept(token, batch, kernel)

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
