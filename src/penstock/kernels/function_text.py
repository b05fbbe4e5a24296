"""A user's function as a short text, by which a restart knows whether it is still the same function."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), date, time, timedelta, Decimal)


def function_text(function: Any) -> str:
    """Its qualified name, and a digest of what it does.

    The digest is over its compiled code, inner functions included, and over plain values (numbers, texts, dates, times;
    tuples, lists, dictionaries and dataclasses of them) that it has as defaults, from the functions around it, as
    attributes of a callable object or as globals of its module. So it changes when the function or such a value does,
    and not with its comments, its docstring, or its place in a file. It does not notice changes in other functions of
    its module, in values of other types, or in files that it reads. Another minor version of Python compiles to other
    code, and gives another digest.

    >>> def at_least(limit):
    ...     return lambda ours, theirs: ours["a"] >= limit
    >>> (
    ...     function_text(at_least(1)) == function_text(at_least(1)),
    ...     function_text(at_least(1)) == function_text(at_least(2)),
    ... )
    (True, False)
    """
    digest = hashlib.sha256()
    for part in _parts(function, depth=0):
        digest.update(part.encode() + b"\0")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name}, code {digest.hexdigest()[:12]} of Python {sys.version_info[0]}.{sys.version_info[1]}"


def _parts(value: Any, depth: int) -> Iterator[str]:
    yield type(value).__name__
    if depth > 8:  # what refers to itself has no end
        return
    inner = functools.partial(_each, depth=depth + 1)
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, (tuple, list)):
        yield from inner(value)
    elif isinstance(value, (set, frozenset)):
        yield from sorted("\0".join(_parts(one, depth + 1)) for one in value)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from inner((name, one))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from inner((vars(type(value)).get("__call__"), [getattr(value, each.name) for each in fields(value)]))
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        yield from inner((value.co_names, value.co_consts))
    elif isinstance(value, FunctionType):
        yield from _of_function(value, depth)
    elif isinstance(value, MethodType):
        yield from inner((value.__func__, vars(value.__self__) if hasattr(value.__self__, "__dict__") else None))
    elif isinstance(value, functools.partial):
        yield from inner((value.func, value.args, value.keywords))
    elif depth == 0:  # an object that can be called
        yield from inner((vars(type(value)).get("__call__"), getattr(value, "__dict__", None)))


def _each(values: Any, depth: int) -> Iterator[str]:
    for one in values:
        yield from _parts(one, depth)


def _of_function(function: FunctionType, depth: int) -> Iterator[str]:
    code = function.__code__
    if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    names = {name for each in _codes(code) for name in each.co_names}
    known = {name: function.__globals__[name] for name in sorted(names & function.__globals__.keys())}
    plain = {name: one for name, one in known.items() if isinstance(one, (*_PLAIN, tuple, list, dict))}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in cells if cell != CellType()}  # some have no value yet
    yield from _each((code, (function.__defaults__, function.__kwdefaults__, around, plain)), depth + 1)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
