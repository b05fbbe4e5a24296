"""All that is wrong with what an operator was given, said at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError, PlanError


class Faults(list[PenstockError]):
    """Faults as they are found.

    >>> from penstock.plan.units import parse_size
    >>> faults = Faults()
    >>> faults.tried(parse_size, "64MB"), faults.tried(parse_size, "lots"), len(faults)
    (67108864, None, 1)
    """

    def tried(self, read: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """What `read` gives, or None, and its fault is here."""
        try:
            return read(*given, **options)
        except PenstockError as fault:
            self.append(fault)
            return None

    def complain(self, of: str) -> None:
        """Raise the only fault, or one that names all, each once; nothing where there is none."""
        told = list(dict.fromkeys(map(str, self)))
        if len(told) == 1:
            raise self[0]
        if told:
            raise PlanError(f"{len(told)} faults in {of}.", why="\n  ".join(told))
