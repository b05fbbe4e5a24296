"""Coefficients kept beside their table, for as long as table, program and machine are the same.

::

    <table directory>/_penstock_tune.json         names with "_" are no part of a table
    $XDG_CACHE_HOME/penstock/tune-<digest>.json   where that directory cannot be written

    {"penstock_tune": 1, "table": version, "penstock": version, "machine": "...", "found": {asked: coefficients}}
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock import __version__
from penstock.kernels.mesh.calibrate import WINDOWS, calibrate
from penstock.kernels.mesh.page_sizes import page_variants
from penstock.models.mesh_cost import Coefficients
from penstock.tables.base import Table

FORMAT = 1
NAME = "_penstock_tune.json"
#: Wider rows are measured as if they were so wide: the largest window has a million of them.
WIDEST = 256


def coefficients(
    table: Table,
    stream_row_bytes: int,
    *,
    seconds: float = 5.0,
    windows: Sequence[int] = WINDOWS,
    fresh: bool = False,
) -> tuple[Coefficients, bool]:
    """The coefficients of a table, and whether they were found in the cache; measured and kept if not, or if `fresh`.

    Guarantees
        Never those of another version of the table, of another Penstock or of another machine, and never half a file:
        `tests/kernels/mesh_cost/test_tune_cache.py`. What cannot be written is measured again next time.
    State and cost
        A window of a million rows of up to `WIDEST` bytes, however wide those of the stream are.
    """
    asked = json.dumps({"key": list(table.key), "stream_row_bytes": stream_row_bytes, "windows": list(windows)})
    kept = {} if fresh else _read(table)
    if asked in kept:
        with suppress(ValueError, TypeError):
            return Coefficients.loads(kept[asked]), True
    with tempfile.TemporaryDirectory(prefix="penstock-tune-") as scratch:
        variants = page_variants(table, Path(scratch)) if table.rows else []
        width = min(stream_row_bytes, WIDEST)
        found = calibrate(table, width, seconds=seconds, page_sizes=variants, windows=windows)
    if stream_row_bytes > WIDEST:
        found = replace(found, v_S=float(stream_row_bytes))
    _write(table, {**_read(table), asked: found.dumps()})
    return found, False


def known(table: Table, stream_row_bytes: int) -> Coefficients | None:
    """The coefficients that were measured for stream rows of about this size, if any were; measures nothing.

    Those of another size serve as well: the size of a row decides how many wait together, and that is put in anew.
    """
    kept = [(json.loads(asked), text) for asked, text in _read(table).items()]
    near = sorted(
        (abs(asked["stream_row_bytes"] - stream_row_bytes), text)
        for asked, text in kept
        if asked["key"] == list(table.key)
    )
    with suppress(ValueError, TypeError):
        return replace(Coefficients.loads(near[0][1]), v_S=float(stream_row_bytes)) if near else None
    return None


def machine() -> str:
    """What a measurement is good for: processor, cores, architecture."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.machine()}"


def places(table: Table) -> tuple[Path, Path]:
    """Where a table's coefficients are kept: beside it, or else among the user's caches."""
    path = Path(table.path)
    beside = path / NAME if path.is_dir() else path.with_name(f"_penstock_tune-{path.name}.json")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    return beside, caches / "penstock" / f"tune-{digest}.json"


def _identity(table: Table) -> dict[str, object]:
    return {"penstock_tune": FORMAT, "table": table.version, "penstock": __version__, "machine": machine()}


def _read(table: Table) -> dict[str, str]:
    for place in places(table):
        try:
            whole = json.loads(place.read_bytes())
            found = whole.pop("found")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if whole == _identity(table) and isinstance(found, dict):
            return found
    return {}


def _write(table: Table, found: dict[str, str]) -> None:
    text = json.dumps({**_identity(table), "found": found})
    for place in places(table):
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            scratch = place.with_name(f"{place.name}.{os.getpid()}")
            scratch.write_text(text)
            scratch.replace(place)
            return


def _processor() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor()
