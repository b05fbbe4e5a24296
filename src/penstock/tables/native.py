"""Compiled loops: one decorator with a cache that survives the process, and loads and stores by address.

Workers start often, so a function is compiled once for a machine, for the types it declares, and loaded from Numba's
cache afterwards (beside the module; else in `NUMBA_CACHE_DIR` or the user's cache directory). Where nothing is
writable it is compiled in each process.

Arrow buffers and memory maps are not NumPy arrays and need not be aligned: compiled loops that walk them take an
address (`int`, as `buffer.address` has it) and use `load64` and its kind. Nothing checks such an address, so callers
keep the buffer alive and the arithmetic right.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic, register_jitable

F = TypeVar("F", bound=Callable[..., Any])

ADDRESS = types.uint64
SIZE = types.int64
#: Arguments that are only read; a writable array is accepted as well.
I64S = types.Array(types.int64, 1, "C", readonly=True)
U64S = types.Array(types.uint64, 1, "C", readonly=True)
#: Arguments that are written.
U64S_OUT = types.Array(types.uint64, 1, "C")
I64S_OUT = types.Array(types.int64, 1, "C")


def native(*signature: object, returns: object = types.void) -> Callable[[F], F]:
    """Compile for these argument types when the module is imported, or load what an earlier process compiled."""

    def compiled(function: F) -> F:
        exact = returns(*signature)  # type: ignore[operator]
        try:
            return njit(exact, cache=True, nogil=True)(function)
        except RuntimeError as error:
            if "cache" not in str(error):
                raise
            return njit(exact, nogil=True)(function)

    return compiled


#: Marks a helper that is compiled into its callers.
helper = register_jitable


def _loader(bits: int, result: object) -> Any:
    def load(_context: object, address: object) -> Any:
        def generate(_target: object, builder: Any, _signature: object, arguments: Any) -> Any:
            # Alignment 1: the value may lie anywhere.
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return result(types.uint64), generate  # type: ignore[operator]

    return intrinsic(load)


def _storer(bits: int) -> Any:
    def store(_context: object, address: object, value: object) -> Any:
        def generate(target: Any, builder: Any, _signature: object, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            pointer = builder.inttoptr(arguments[0], kind.as_pointer())
            narrow = arguments[1] if bits == 64 else builder.trunc(arguments[1], kind)
            builder.store(narrow, pointer, align=1)
            return target.get_dummy_value()

        return types.void(types.uint64, types.uint64), generate

    return intrinsic(store)


def _call_pread(_context: Any, function: Any, descriptor: Any, to: Any, size: Any, offset: Any) -> Any:
    """The C function `pread` at an address."""

    def generate(_target: object, builder: Any, _signature: object, arguments: Any) -> Any:
        word, number = ir.IntType(64), ir.IntType(32)
        kind = ir.FunctionType(word, [number, word, word, word]).as_pointer()
        pread = builder.inttoptr(arguments[0], kind)
        return builder.call(pread, [builder.trunc(arguments[1], number), *arguments[2:]])

    return types.int64(types.uint64, types.int64, types.uint64, types.int64, types.int64), generate


_pread: Any = intrinsic(_call_pread)


@helper
def read_into(function: Any, descriptor: Any, to: Any, size: Any, offset: Any) -> Any:
    """Read `size` bytes of a file to an address; False if there are fewer, or none can be read."""
    done = 0
    while done < size:
        got = _pread(function, descriptor, to + np.uint64(done), size - done, offset + done)
        if got <= 0:
            return False
        done += got
    return True


#: Where `pread` is in this process. An argument of compiled loops, not a constant in them: they outlive the process.
PREAD: int = ctypes.cast(ctypes.CDLL(None).pread, ctypes.c_void_p).value or 0

load64 = _loader(64, types.uint64)
load32 = _loader(32, types.uint64)
load16 = _loader(16, types.uint64)
load8 = _loader(8, types.uint64)
store64 = _storer(64)
store32 = _storer(32)
store16 = _storer(16)
store8 = _storer(8)
