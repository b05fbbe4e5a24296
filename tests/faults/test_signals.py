"""SIGTERM and SIGINT: the micro-batch under way is finished, exit 0, and nothing is left behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def numbers(log: Path) -> set[int]:
    return {int(entry.name) for entry in log.glob("[0-9]*")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_program_ends_cleanly_when_asked(tmp_path: Path, number: signal.Signals) -> None:
    shop = Workshop(tmp_path / "shop", files=12)
    # Ctrl-C finds a script that only waits.
    bare = ["--bare"] if number == signal.SIGINT else []
    program = shop.start("--sinks", "ledger", "--trigger", "always", *bare)
    staging = shop.base / "out" / "_penstock" / "staging"
    program.wait_for(lambda: shop.batches() >= 3 and any(staging.iterdir()))
    under_way = shop.batches() - 1
    program.process.send_signal(number)
    assert program.wait(120) == 0, program.said
    assert ("interrupted" in program.said) == bool(bare)
    assert "Traceback" not in program.said
    commits = numbers(shop.base / "ck" / "commits")
    assert under_way in commits, "the batch under way was not finished"
    assert {int(entry.stem) for entry in (staging.parent / "ledger").iterdir()} == commits
    assert not list(staging.iterdir())
    assert not program.members()
    left = list((shop.base / "tmp").iterdir())
    assert left == [], "\n".join(path.read_text() for path in left if path.suffix == ".log")
    assert shop.batches() < 12, "it was to stop before its end"
    shop.check_so_far()
    if number == signal.SIGTERM:
        shop.finish("--sinks", "ledger")
        shop.check("ledger")
