"""Tables made by seed, kept outside git, and used again only if they are complete."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Say
from benchmarks.machine import ROOT

_COMPLETE = "_complete.json"


def folder() -> Path:
    """Where data is kept: PENSTOCK_BENCH_DATA, or benchmarks/data."""
    return Path(os.environ.get("PENSTOCK_BENCH_DATA") or ROOT / "benchmarks" / "data")


def cached(name: str, settings: dict[str, Any], make: Callable[[Path], None], say: Say) -> Path:
    """The directory that `make` fills, made now unless it is there and complete."""
    place = _place(name, settings)
    if is_complete(place):
        return place
    say(f"making {place.name} in {place.parent}")
    scratch = place.with_name(f".{place.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    make(scratch)
    # Written last, with the size of every file: a directory without it, or with other sizes, was cut short.
    (scratch / _COMPLETE).write_text(json.dumps({"settings": settings, "sizes": _sizes(scratch)}))
    shutil.rmtree(place, ignore_errors=True)
    scratch.rename(place)
    return place


def forget(name: str, settings: dict[str, Any]) -> None:
    """Remove what `cached` would find."""
    shutil.rmtree(_place(name, settings), ignore_errors=True)


def _place(name: str, settings: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
    return folder() / f"{name}-{digest}"


def is_complete(place: Path) -> bool:
    """Whether every file is there with the size it had when the directory was finished."""
    try:
        said = json.loads((place / _COMPLETE).read_text())
    except (OSError, ValueError):
        return False
    return bool(said["sizes"] == _sizes(place))


def _sizes(place: Path) -> dict[str, int]:
    found = (path for path in place.rglob("*") if path.is_file() and path.name != _COMPLETE)
    return {str(path.relative_to(place)): path.stat().st_size for path in sorted(found)}


@dataclass(frozen=True)
class WideTable:
    """A table with a unique int64 key 0 … rows - 1 in random order, and random int64 columns that no codec shrinks."""

    rows: int
    columns: int = 15
    files: int = 8
    group_rows: int = 131_072
    seed: int = 1
    key: str = "product_id"

    @property
    def values(self) -> list[str]:
        """The names of the columns beside the key."""
        return [f"v{number:02d}" for number in range(1, self.columns)]

    def write(self, place: Path) -> None:
        """As Parquet files, as pyarrow writes them by default."""
        rng = np.random.default_rng(self.seed)
        keys = rng.permutation(self.rows)
        whole = np.iinfo(np.int64)
        for number, part in enumerate(np.array_split(keys, self.files)):
            columns = [rng.integers(whole.min, whole.max, len(part), np.int64) for _ in self.values]
            table = pa.table([part, *columns], names=[self.key, *self.values])
            pq.write_table(table, place / f"part-{number:03d}.parquet", row_group_size=self.group_rows)

    def get(self, say: Say) -> Path:
        """The directory, made if need be."""
        return cached(f"wide-{self.rows}x{self.columns}", asdict(self), self.write, say)
