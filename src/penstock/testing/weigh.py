"""What a kernel really holds: the bytes that can be reached from it, to compare with what it says it holds."""

from __future__ import annotations

import gc
import mmap
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, GetSetDescriptorType, ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import KernelFault
from penstock.kernels.contract import Emission, Kernel
from penstock.testing.host import Host
from penstock.testing.promises import name_of

Identity = tuple[str, int]

#: Code and descriptions, not state; and files mapped into memory, which the system takes back at will.
_WEIGHTLESS = (
    type,
    ModuleType,
    CodeType,
    FrameType,
    BuiltinFunctionType,
    GetSetDescriptorType,
    mmap.mmap,
    np.memmap,
    np.dtype,
    pa.DataType,
    pa.Schema,
    pa.Field,
)


@dataclass
class Scale:
    """Weighs what can be reached from an object, apart from what can be reached from `lent`: others hold that.

    Counted once each, wherever they are referred to: Arrow buffers (whole, even if a slice is all that is kept of one),
    NumPy arrays with the memory behind their views, and every Python object on the way. Not seen: what lives in foreign
    code alone, such as Numba's typed containers.
    """

    lent: Iterable[object] = ()
    _known: dict[Identity, object] = field(init=False)

    def __post_init__(self) -> None:
        # The objects are kept, so that no other can come to have the identity of one of them.
        self._known = {identity: thing for identity, thing, _ in _reach(self.lent, {})}

    def weigh(self, *things: object) -> int:
        """Bytes."""
        return sum(size for _, _, size in _reach(things, self._known))


class WeighingHost(Host):
    """A host that weighs its kernel whenever it emits and at the end of each step.

    `KernelFault` if it is heavier than it says by more than `allowance`, which is for the Python objects that no
    kernel counts one by one.
    """

    def __init__(self, *args: Any, scale: Scale, allowance: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scale = scale
        self.allowance = allowance
        #: The heaviest the kernel was found to be.
        self.heaviest = 0

    def _store(self, emissions: Iterator[Emission]) -> list[Emission]:
        return super()._store(self._weighing(self.kernel, emissions))

    def _weighing(self, kernel: Kernel, emissions: Iterator[Emission]) -> Iterator[Emission]:
        heaviest = 0
        for count, emission in enumerate(emissions):
            # The walk takes time: all of the first emissions, then ever fewer.
            if count < 16 or count & (count - 1) == 0:
                heaviest = max(heaviest, self.scale.weigh(kernel))
            yield emission
        heaviest = max(heaviest, self.scale.weigh(kernel))
        self.heaviest = max(self.heaviest, heaviest)
        claimed = kernel.memory()
        if heaviest > claimed + self.allowance:
            raise KernelFault(
                f"{name_of(kernel)} held {heaviest:,} bytes and said {claimed:,}.",
                why=f"That is {heaviest - claimed:,} more, where {self.allowance:,} are allowed for small objects.",
                do="Count it in memory(), let go of it, or name it in the case's `lent` if it is not the kernel's.",
            )


def _reach(roots: Iterable[object], known: Mapping[Identity, object]) -> Iterator[tuple[Identity, object, int]]:
    """Everything that can be reached, once each: identity, object, bytes of its own."""
    # Objects are kept, not their identities alone: Arrow makes new ones on asking, and the next would take its place.
    seen: dict[Identity, object] = {}
    todo = list(roots)
    while todo:
        thing = todo.pop()
        if thing is None or isinstance(thing, _WEIGHTLESS):
            continue
        memory = _memory(thing)
        identity = ("object", id(thing)) if memory is None else ("memory", memory[0])
        if identity in seen or identity in known:
            continue
        seen[identity] = thing
        yield identity, thing, _own_size(thing) if memory is None else memory[1]
        todo += _parts(thing)


def _own_size(thing: Any) -> int:
    """Bytes of the object alone; Arrow's say `nbytes` too, and their buffers are counted where they are reached."""
    if isinstance(thing, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table):
        return int(object.__sizeof__(thing))
    return sys.getsizeof(thing, 0)


def _memory(thing: Any) -> tuple[int, int] | None:
    """Address and bytes of what is plain memory, so that two wrappers of the same count once."""
    if isinstance(thing, pa.Buffer):
        while thing.parent is not None:
            thing = thing.parent
        return thing.address, thing.size
    if isinstance(thing, np.ndarray) and thing.base is None:
        return thing.__array_interface__["data"][0], thing.nbytes
    return None


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, pa.Buffer | str | bytes | bytearray | int | float):
        return []
    if isinstance(thing, pa.Table | pa.RecordBatch):
        return list(thing.columns)
    if isinstance(thing, pa.ChunkedArray):
        return list(thing.chunks)
    if isinstance(thing, pa.DictionaryArray):
        return [*thing.buffers(), thing.dictionary]
    if isinstance(thing, pa.Array):
        return list(thing.buffers())
    if isinstance(thing, np.ndarray):
        return [*([] if thing.base is None else [thing.base]), *(thing.flat if thing.dtype == object else ())]
    if isinstance(thing, memoryview):
        return [thing.obj]
    if isinstance(thing, FunctionType):
        # Not its globals: they lead to the whole program.
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    return gc.get_referents(thing)
