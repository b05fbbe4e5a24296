"""Preparing: all or nothing at the target, the same version from the same source, bounded memory, clear refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadOption, PenstockError, UnknownColumn, UnreadableTable
from penstock.tables import prepare, table
from tests.tables.samples import all_rows, numbers, write


def by_id(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["id"])


def test_all_rows_are_there_and_pages_are_small(tmp_path: Path) -> None:
    source = write(numbers(5000), tmp_path / "source", files=2, row_group_size=700)
    told: list[tuple[str, int, int]] = []
    made = prepare(source, tmp_path / "target", key="id", page_bytes=8192, progress=lambda *each: told.append(each))
    assert by_id(all_rows(made)) == by_id(all_rows(table(source, key="id")))
    assert made == table(tmp_path / "target", key="id")
    assert max(page.row_bytes for page in made.pages) <= 8192 + 64
    assert {what for what, _, _ in told} == {"read", "write"}
    assert told[-1] == ("write", 5000, 5000)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["source", "target"]


def test_a_row_larger_than_a_page_has_a_page_of_its_own(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "text": ["x" * 100_000, "", "y" * 10_000_000]})
    made = prepare(write(rows, tmp_path / "s"), tmp_path / "t", key="id", page_bytes=4096)
    assert by_id(all_rows(made)) == rows.to_pylist()


def test_an_empty_table_can_be_prepared(tmp_path: Path) -> None:
    made = prepare(write(numbers(3).slice(0, 0), tmp_path / "s"), tmp_path / "t", key="id")
    assert made.pages == ()
    assert made.by_key(0, 3) == ()
    assert table(tmp_path / "t", key="id").schema.names == ["id", "name", "a", "b"]


def test_the_same_source_gives_the_same_version(tmp_path: Path) -> None:
    source = write(numbers(20_000), tmp_path / "s", row_group_size=5000)
    one = prepare(source, tmp_path / "one", key="id", page_bytes=1 << 14)
    two = prepare(source, tmp_path / "two", key="id", page_bytes=1 << 14)
    assert one.version == two.version
    assert one.version != prepare(source, tmp_path / "three", key="id", page_bytes=1 << 12).version


def test_spilling_changes_nothing(tmp_path: Path) -> None:
    rows = 120_000
    wide = numbers(rows).append_column("text", pa.array(["w" * 100] * rows))
    source = write(wide, tmp_path / "s", row_group_size=10_000)
    plain = prepare(source, tmp_path / "plain", key="id")
    spilled = prepare(source, tmp_path / "spilled", key="id", memory=16 << 20)
    assert plain.version == spilled.version


def test_a_prepared_table_can_be_prepared_again_for_another_key(tmp_path: Path) -> None:
    source = write(numbers(2000), tmp_path / "s")
    once = prepare(source, tmp_path / "once", key="id")
    again = prepare(once, tmp_path / "again", key=["name", "a"])
    assert again.key == ("name", "a")
    assert by_id(all_rows(again)) == by_id(all_rows(once))


def test_an_existing_prepared_table_is_replaced(tmp_path: Path) -> None:
    first = prepare(write(numbers(100), tmp_path / "s1"), tmp_path / "t", key="id")
    second = prepare(write(numbers(200, seed=1), tmp_path / "s2"), tmp_path / "t", key="id")
    assert first.version != second.version
    assert table(tmp_path / "t", key="id").version == second.version
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s1", "s2", "t"]


def test_replacing_without_an_atomic_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[prepare.__module__]
    monkeypatch.setattr(module, "_exchange", lambda *_: False)
    prepare(write(numbers(100), tmp_path / "s1"), tmp_path / "t", key="id")
    second = prepare(write(numbers(200, seed=1), tmp_path / "s2"), tmp_path / "t", key="id")
    assert len(all_rows(second)) == 200
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s1", "s2", "t"]


def killed(source: Path, target: Path, where: str) -> None:
    """Prepare in a process of its own that is killed at a certain point."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def progress(what: str, done: int, total: int) -> None:
        if what == where and done > total // 2:
            die()

    child = os.fork()
    if child == 0:
        module = sys.modules[prepare.__module__]
        if where == "written":
            module._put_in_place = die  # type: ignore[attr-defined]
        elif where == "synced":
            module._exchange = module.os.rename = die  # type: ignore[attr-defined]
        elif where == "in place":
            sync = module._sync  # type: ignore[attr-defined]
            module._sync = lambda path: die() if path == target.parent else sync(path)  # type: ignore[attr-defined]
        try:
            prepare(source, target, key="id", page_bytes=4096, memory=16 << 20, progress=progress)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("where", ["read", "write", "written", "synced", "in place"])
@pytest.mark.parametrize("existing", [False, True], ids=["nothing before", "a table before"])
def test_a_killed_prepare_leaves_the_old_table_or_none(tmp_path: Path, where: str, existing: bool) -> None:
    source = write(numbers(20_000), tmp_path / "s", row_group_size=2000)
    target = tmp_path / "t"
    old = prepare(write(numbers(50, seed=3), tmp_path / "s0"), target, key="id") if existing else None
    killed(source, target, where)
    if where == "in place":
        assert len(all_rows(table(target, key="id"))) == 20_000
    elif old is None:
        assert not target.exists()
    else:
        assert table(target, key="id").version == old.version
        assert len(all_rows(old)) == 50
    # What it left does not stand in the way, and goes.
    made = prepare(source, target, key="id")
    assert len(all_rows(made)) == 20_000
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["s", *(["s0"] if existing else []), "t"]


def test_a_failing_prepare_cleans_up(tmp_path: Path) -> None:
    source = write(numbers(100), tmp_path / "s")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "t", key="id", progress=stop)
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]


def test_two_at_once_on_one_target_are_refused(tmp_path: Path) -> None:
    source = write(numbers(100), tmp_path / "s")
    refused: list[PenstockError] = []

    def second(*_: object) -> None:
        with pytest.raises(BadOption) as caught:
            prepare(source, tmp_path / "t", key="id")
        refused.append(caught.value)

    prepare(source, tmp_path / "t", key="id", progress=second)
    assert "another process" in refused[0].what
    assert len(all_rows(table(tmp_path / "t", key="id"))) == 100


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """A 60 MB table through 16 MB, in a process of its own whose peak is measured."""
    rows = 120_000
    random = np.random.default_rng(0)
    for number in range(4):
        columns = {"id": random.integers(0, 1 << 40, rows), **{f"c{i}": random.random(rows) for i in range(15)}}
        (tmp_path / "s").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / "s" / f"{number}.parquet", row_group_size=50_000)
    code = """
        import resource, sys
        from penstock.tables import prepare
        small, large, target = sys.argv[1:]
        prepare(small, target + "-small", key="id", memory=16 << 20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        prepare(large, target, key="id", memory=16 << 20)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    small = write(numbers(100), tmp_path / "small")
    command = [sys.executable, "-c", textwrap.dedent(code), str(small), str(tmp_path / "s"), str(tmp_path / "t")]
    grown = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout) << 10
    assert grown < 32 << 20
    assert table(tmp_path / "t", key="id").rows == 4 * rows


@pytest.mark.parametrize("what", ["directory", "file"])
def test_a_target_that_is_something_else_is_refused(tmp_path: Path, what: str) -> None:
    source = write(numbers(10), tmp_path / "s")
    target = tmp_path / "t"
    if what == "directory":
        target.mkdir()
        (target / "precious.txt").write_text("keep me")
    else:
        target.write_text("keep me")
    with pytest.raises(BadOption, match="not a prepared table"):
        prepare(source, target, key="id")
    kept = target / "precious.txt" if what == "directory" else target
    assert kept.read_text() == "keep me"


def test_an_empty_directory_is_a_fine_target(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    prepare(write(numbers(10), tmp_path / "s"), tmp_path / "t", key="id")
    assert table(tmp_path / "t", key="id").rows == 10


def test_other_bad_input_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = write(numbers(10), tmp_path / "s")
    with pytest.raises(BadOption, match="one in the other"):
        prepare(source, source / "inside", key="id")
    with pytest.raises(UnknownColumn, match="'id'"):
        prepare(source, tmp_path / "t", key="idd")
    with pytest.raises(UnknownColumn, match="'id'"):
        prepare(table(source, key="id"), tmp_path / "t", key="idd")
    with pytest.raises(UnreadableTable, match="does not exist"):
        prepare(tmp_path / "nowhere", tmp_path / "t", key="id")
    for option, size in (("page_bytes", 1), ("page_bytes", "256KB"), ("memory", 1), ("memory", "1GB")):
        with pytest.raises(BadOption, match=f"{option}={size!r}"):
            prepare(source, tmp_path / "t", key="id", **{option: size})
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]
