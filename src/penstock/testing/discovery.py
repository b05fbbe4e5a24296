"""Finds every kernel of a package, so that none goes untested."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.kernels.contract import Kernel
from penstock.testing.case import Case


def discover(package: str = "penstock.kernels") -> list[type[Kernel]]:
    """Every concrete kernel class defined in a package or below it, by name; all its modules are imported.

    Files are found by looking at the folders, so that a folder without `__init__.py` hides nothing.
    """
    root = importlib.import_module(package)
    modules = [root]
    for folder in map(Path, getattr(root, "__path__", ())):
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            dotted = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
            modules.append(importlib.import_module(dotted))
    found = {
        cls
        for module in modules
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Kernel) and not inspect.isabstract(cls) and cls.__module__ == module.__name__
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def uncovered(kernels: Iterable[type[Kernel]], cases: Iterable[Case[Any]]) -> list[str]:
    """The full names of those kernels that no case makes."""
    covered = {case.kernel for case in cases}
    return [f"{cls.__module__}.{cls.__qualname__}" for cls in kernels if cls not in covered]


def load_cases(folder: Path) -> None:
    """Import every file of a folder of cases, once, but those whose names begin with an underscore."""
    for file in sorted(folder.glob("[!_]*.py")):
        name = f"penstock_cases_{zlib.crc32(str(folder.resolve()).encode()):08x}_{file.stem}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} cannot be imported.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
