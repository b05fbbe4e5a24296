"""Our own files, cut or changed at every byte: the old state, the new one, or refused by name; never a mixture."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pyarrow as pa
import pytest

from penstock.errors import BadOption, CheckpointDamaged, CheckpointInUse, CheckpointMismatch, SinkDamaged, StateDamaged
from penstock.spark.agreement import as_begun, check_agreement
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.chunks import ChunkCache, entry_of
from penstock.spark.failures import cause
from penstock.spark.files import read_whole, write_whole
from penstock.spark.running import Running
from penstock.spark.sink import Ledger, commit, staging


def damaged(whole: bytes):
    """Every cut, and every byte changed."""
    for at in range(len(whole)):
        yield whole[:at]
        yield whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    yield whole + b"\n"


class Plan:
    """As much of a plan as a checkpoint asks for."""

    loose: tuple[str, ...] = ()
    keeps_nothing = False

    def __init__(self, **identity: str) -> None:
        self._identity = identity

    def identity(self) -> dict[str, str]:
        return self._identity


def test_whole_file_is_read_back_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "said.json"
    write_whole(path, {"one": [1, 2, "\u00e9"]})
    whole = path.read_bytes()
    assert read_whole(path) == {"one": [1, 2, "\u00e9"]}
    for body in damaged(whole):
        path.write_bytes(body)
        assert read_whole(path) is None, body


def test_write_is_old_or_new_wherever_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "said.json"
    write_whole(path, {"n": 0})

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for number, step in enumerate(("os.fsync", "pathlib.Path.rename", "os.open")):
        with monkeypatch.context() as patch:
            patch.setattr(step, killed)
            with pytest.raises(Killed):
                write_whole(path, {"n": number + 1})
        assert read_whole(path) in ({"n": number}, {"n": number + 1})
        write_whole(path, {"n": number + 1})
    assert [entry.name for entry in tmp_path.iterdir()] == ["said.json"], "abandoned attempts are swept"


def stage(ledger: Ledger, name: str, body: bytes) -> dict[str, object]:
    (staging(ledger.place) / name).write_bytes(body)
    return {"name": name, "rows": 1, "bytes": len(body)}


def shown(ledger: Ledger) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in ledger.place.glob("*.parquet")}


def test_ledger_entry_cut_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "out", "me")
    ledger.claim()
    ledger.commit(0, [stage(ledger, "part-0-a.parquet", b"first")])
    before = shown(ledger)
    entry = next((tmp_path / "out" / "_penstock" / "ledger").glob("*.json"))
    whole = entry.read_bytes()
    for body in damaged(whole):
        entry.write_bytes(body)
        with pytest.raises(SinkDamaged, match=entry.name):
            ledger.commit(0, [stage(ledger, "part-0-b.parquet", b"again")])
        assert shown(ledger) == before
    entry.write_bytes(whole)
    ledger.commit(0, [stage(ledger, "part-0-c.parquet", b"again")])
    assert shown(ledger) == before, "a batch that comes again changes nothing"
    assert not list(staging(ledger.place).iterdir())


def test_owner_cut_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "out", "me")
    ledger.claim()
    owner = tmp_path / "out" / "_penstock" / "owner.json"
    for body in damaged(owner.read_bytes()):
        owner.write_bytes(body)
        with pytest.raises(SinkDamaged, match=r"owner\.json"):
            ledger.claim()


def test_directory_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    Ledger(tmp_path / "out", "me").claim()
    with pytest.raises(BadOption, match="another query"):
        Ledger(tmp_path / "out", "you").claim()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "letter.txt").write_text("dear")
    with pytest.raises(BadOption, match="not empty"):
        Ledger(tmp_path / "theirs", "me").claim()
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["letter.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BadOption, match="cannot be written"):
        Ledger(tmp_path / "file" / "out", "me").claim()


def test_directory_that_got_no_batch_goes_over_once_nobody_runs_on_its_checkpoint(tmp_path: Path) -> None:
    """A query that failed in its first micro-batch, and whose checkpoint was thrown away or left."""

    def start(checkpoint: str) -> tuple[Checkpoint, Ledger]:
        held = Checkpoint(str(tmp_path / checkpoint), Plan(on="a"))  # type: ignore[arg-type]
        return held, Ledger(tmp_path / "out", held.id, None, held.path)

    held, ledger = start("ck")
    assert ledger.claim()
    assert not ledger.claim()
    other, theirs = start("other")
    with pytest.raises(BadOption, match="another query"):
        theirs.claim()
    held.close()
    assert theirs.claim()
    other.close()
    shutil.rmtree(tmp_path / "other")
    again, ledger = start("other")
    assert ledger.claim()
    ledger.commit(0, [])
    again.close()
    shutil.rmtree(tmp_path / "other")
    with pytest.raises(BadOption, match="another query"):
        start("other")[1].claim()


def test_only_one_of_two_that_claim_a_directory_at_once_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = Ledger(tmp_path / "out", "me"), Ledger(tmp_path / "out", "you")
    holder = Ledger.holder

    def looked_at_first(ledger: Ledger) -> str | None:
        found = holder(ledger)
        monkeypatch.undo()
        assert theirs.claim()
        return found

    monkeypatch.setattr(Ledger, "holder", looked_at_first)
    with pytest.raises(BadOption, match="another query"):
        mine.claim()
    assert theirs.holder() == "you"


def test_who_comes_while_another_claims_a_directory_leaves_the_claim_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads, or processes of one number in two containers, wrote one and the same file."""
    mine, theirs = Ledger(tmp_path / "out", "me"), Ledger(tmp_path / "out", "you")
    holder, link = Ledger.holder, os.link

    def linked_a_moment_later(*paths: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        link(*paths)
        monkeypatch.setattr(Ledger, "holder", lambda ledger: monkeypatch.setattr(Ledger, "holder", holder))
        with pytest.raises(BadOption, match="another query"):
            theirs.claim()

    monkeypatch.setattr(os, "link", linked_a_moment_later)
    assert mine.claim()
    assert mine.holder() == "me"
    assert [path.name for path in (tmp_path / "out" / "_penstock").iterdir() if path.is_file()] == ["owner.json"]


@pytest.mark.parametrize("killed_at", range(8))
def test_commit_of_two_channels_killed_anywhere_is_made_good(tmp_path: Path, killed_at: int) -> None:
    """Killed before the n-th change to the disk; the batch comes again with other files."""
    ledgers = {name: Ledger(tmp_path / name, "me") for name in ("results", "set_aside")}
    for ledger in ledgers.values():
        ledger.claim()

    def written(attempt: str) -> list[dict[str, object]]:
        rows = []
        for channel, ledger in ledgers.items():
            for part in ("0", "1"):
                body = f"{channel} {part}".encode()
                file = stage(ledger, f"part-{part}-{attempt}.parquet", body)
                rows.append({"channel": channel, "file": file["name"], "rows": 1, "bytes": len(body)})
        return rows

    class Killed(BaseException):
        pass

    left = [killed_at]
    rename = Path.rename

    def dying(self: Path, target: Path) -> Path:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return rename(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        try:
            commit(ledgers, 0, written("a"))  # type: ignore[arg-type]
        except Killed:
            pass
        else:
            assert killed_at >= 6, "two entries and four files are renamed"
    commit(ledgers, 0, written("b"))  # type: ignore[arg-type]
    for channel, ledger in ledgers.items():
        assert sorted(shown(ledger).values()) == [f"{channel} 0".encode(), f"{channel} 1".encode()]


def test_committed_file_that_is_gone_is_named(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "out", "me")
    ledger.claim()
    ledger.commit(0, [stage(ledger, "part-0-a.parquet", b"first")])
    (tmp_path / "out" / "part-0-a.parquet").unlink()
    with pytest.raises(SinkDamaged, match=r"part-0-a\.parquet is missing"):
        ledger.commit(0, [])


def test_chunk_cache_never_gives_what_was_not_stored(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path / "cache")
    blob = pa.py_buffer(b"a chunk of some bytes")
    entry = entry_of(blob)
    cache.put("p0", entry, blob)
    copy = next((tmp_path / "cache").iterdir())
    for body in damaged(bytes(blob)):
        copy.unlink()
        copy.write_bytes(body)
        assert cache.get("p0", entry) is None, body
    copy.unlink()
    assert cache.get("p0", entry) is None
    cache.put("p0", entry, blob)
    assert bytes(cache.get("p0", entry)) == bytes(blob)


def test_chunk_cache_on_a_full_or_read_only_disk_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    cache = ChunkCache(tmp_path / "file" / "cache")
    blob = pa.py_buffer(b"x")
    cache.put("p0", entry_of(blob), blob)
    assert cache.get("p0", entry_of(blob)) is None
    cache.keep_only({})


def test_chunk_cache_keeps_no_copy_that_was_not_finished(tmp_path: Path) -> None:
    """A worker was killed while it wrote one, or the disk was full."""
    cache = ChunkCache(tmp_path / "cache")
    blob = pa.py_buffer(b"x")
    cache.put("p0", entry_of(blob), blob)
    (tmp_path / "cache" / "p1-00000000-9.4711").write_bytes(b"half")
    cache.keep_only({"p0": entry_of(blob)})
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert cache.get("p0", entry_of(blob)) == blob


# -- the checkpoint ----------------------------------------------------------------------------------------------------


def checkpoint(path: Path, **identity: str) -> Checkpoint:
    return Checkpoint(str(path), Plan(**identity))  # type: ignore[arg-type]


def test_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    held = checkpoint(tmp_path / "ck", on="a")
    with pytest.raises(CheckpointInUse, match="in use by process"):
        checkpoint(tmp_path / "ck", on="a")
    held.close()
    checkpoint(tmp_path / "ck", on="a").close()


def test_half_of_a_first_entry_is_removed(tmp_path: Path) -> None:
    """Spark does not begin where it finds one; of later entries it takes no notice."""
    checkpoint(tmp_path / "ck", on="a").close()
    offsets = tmp_path / "ck" / "offsets"
    offsets.mkdir()
    for half in (".0.2b3ccc2f.tmp", "..0.2b3ccc2f.tmp.crc"):
        (offsets / half).write_bytes(b"v1")
    checkpoint(tmp_path / "ck", on="a").close()
    assert list(offsets.iterdir()) == []


def test_checkpoint_is_closed_by_one_at_a_time(tmp_path: Path) -> None:
    """One thread stops a query, another waits for it; a file that is closed by both at once raises."""
    held = checkpoint(tmp_path / "ck", on="a")
    file, under_way, together = held._lock, [], []

    def close() -> None:
        together.append(bool(under_way))
        under_way.append(None)
        time.sleep(0.05)
        under_way.pop()
        file.close()

    held._lock = Mock(close=close)
    threads = [threading.Thread(target=held.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [False, False]


def test_checkpoint_of_a_query_that_ended_unattended_is_free(tmp_path: Path) -> None:
    """Nobody called `wait` or `stop`, which would have closed it: the query failed, or the session was stopped."""
    first = Running(Mock(), checkpoint(tmp_path / "ck", on="a"))
    with pytest.raises(CheckpointInUse):
        checkpoint(tmp_path / "ck", on="a")
    first.query = Mock(isActive=True)
    with pytest.raises(CheckpointInUse):
        checkpoint(tmp_path / "ck", on="a")
    first.query = Mock(isActive=False)
    second = Running(Mock(), checkpoint(tmp_path / "ck", on="a"))
    second.query = type("OfAJvmThatIsGone", (), {"isActive": property(lambda self: 1 // 0)})()
    checkpoint(tmp_path / "ck", on="a").close()


@pytest.mark.parametrize("seconds", ["10", True, float("nan"), [1]])
def test_who_waits_for_what_is_no_time_does_not_give_the_checkpoint_away(tmp_path: Path, seconds: Any) -> None:
    running = Running(Mock(), checkpoint(tmp_path / "ck", on="a"))
    # As Java counts milliseconds.
    running.query = Mock(isActive=True, awaitTermination=lambda seconds: not int(seconds * 1000).to_bytes(8, "big"))
    with pytest.raises(BadOption, match="no number of seconds"):
        running.wait(seconds)
    for long in (0, -1, 10**400, float("inf")):
        assert not running.wait(long)
    with pytest.raises(CheckpointInUse):
        checkpoint(tmp_path / "ck", on="a")


def test_other_plan_is_refused_with_what_differs(tmp_path: Path) -> None:
    checkpoint(tmp_path / "ck", on="a", slots="2").close()
    with pytest.raises(CheckpointMismatch, match="slots was '2' and is now '3'"):
        checkpoint(tmp_path / "ck", on="a", slots="3")
    checkpoint(tmp_path / "ck", on="a", slots="2").close()


def test_other_state_format_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "ck", on="a").close()
    said = read_whole(tmp_path / "ck" / "penstock.json")
    assert said is not None
    write_whole(tmp_path / "ck" / "penstock.json", said | {"format": 999})
    with pytest.raises(CheckpointMismatch, match="state format 999"):
        checkpoint(tmp_path / "ck", on="a")


def test_owner_of_a_checkpoint_cut_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "ck", on="a").close()
    owner = tmp_path / "ck" / "penstock.json"
    for body in damaged(owner.read_bytes()):
        owner.write_bytes(body)
        with pytest.raises(CheckpointDamaged, match=r"penstock\.json"):
            checkpoint(tmp_path / "ck", on="a")


def with_logs(path: Path, batches: int, *, committed: int) -> None:
    """A checkpoint as Spark leaves it, with one file source."""
    checkpoint(path, on="a").close()
    (path / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000000"}')
    for log in ("offsets", "commits", "sources/0"):
        (path / log).mkdir(parents=True)
    for batch in range(batches):
        (path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{batch}}}')
        listed = {"path": f"file:///in/{batch}", "timestamp": 1, "batchId": batch}
        (path / "sources/0" / str(batch)).write_text(f"v1\n{json.dumps(listed)}")
    for batch in range(committed):
        (path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


LOGS = ("offsets/1", "offsets/2", "commits/1", "sources/0/0", "sources/0/2", "metadata")


@pytest.mark.parametrize("name", LOGS)
def test_log_of_spark_cut_or_emptied_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with_logs(tmp_path / "ck", 3, committed=2)
    path = tmp_path / "ck" / name
    whole = path.read_bytes()
    checkpoint(tmp_path / "ck", on="a").close()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        with pytest.raises(CheckpointDamaged, match=name):
            checkpoint(tmp_path / "ck", on="a")


@pytest.mark.parametrize("name", ["offsets/1", "offsets/2", "sources/0/0", "sources/0/2", "metadata"])
def test_log_of_spark_without_an_entry_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with_logs(tmp_path / "ck", 3, committed=3)
    (tmp_path / "ck" / name).unlink()
    with pytest.raises(CheckpointDamaged, match=f"{name} is missing"):
        checkpoint(tmp_path / "ck", on="a")


def test_a_stream_that_is_read_twice_has_one_log(tmp_path: Path) -> None:
    """As a join of a stream with itself has it: no such query could be started again."""
    with_logs(tmp_path / "ck", 3, committed=3)
    sources = tmp_path / "ck" / "sources"
    (sources / "1").mkdir()
    for batch in range(3):
        entry = tmp_path / "ck" / "offsets" / str(batch)
        entry.write_text(f'{entry.read_text()}\n{{"logOffset":{batch}}}\n{{"logOffset":{batch // 2}}}')
    for batch in range(2):
        listed = {"path": f"file:///changes/{batch}", "timestamp": 1, "batchId": batch}
        (sources / "1" / str(batch)).write_text(f"v1\n{json.dumps(listed)}")
    held = checkpoint(tmp_path / "ck", on="a")
    assert [[str(path) for path, _ in held.inputs.of(batch, batch)] for batch in range(3)] == [
        ["/in/0", "/changes/0"], ["/in/1"], ["/in/2", "/changes/1"],
    ]  # fmt: skip
    held.note_sources()
    held.close()
    note = tmp_path / "ck" / "penstock-sources.json"
    whole = note.read_bytes()
    for body in damaged(whole):
        note.write_bytes(body)
        with pytest.raises(CheckpointDamaged, match=r"penstock-sources\.json"):
            checkpoint(tmp_path / "ck", on="a")
    note.write_bytes(whole)
    shutil.rmtree(sources / "1")
    with pytest.raises(CheckpointDamaged, match="sources/1 is missing"):
        checkpoint(tmp_path / "ck", on="a")


def test_compacted_source_log_stands_for_what_it_holds(tmp_path: Path) -> None:
    with_logs(tmp_path / "ck", 4, committed=4)
    log = tmp_path / "ck" / "sources/0"
    lines = [(log / str(batch)).read_text().splitlines()[1] for batch in range(3)]
    (log / "2.compact").write_text("\n".join(["v1", *lines]))
    for batch in range(3):
        (log / str(batch)).unlink()
    held = checkpoint(tmp_path / "ck", on="a")
    assert [path.name for path, _ in held.inputs.of(0, 3)] == ["0", "1", "2", "3"]
    assert [path.name for path, _ in held.inputs.of(3, 3)] == ["3"]
    assert [path.name for path, _ in held.inputs.of(2, 2)] == ["2"]
    held.close()


def test_input_files_that_were_removed_once_they_were_read_hide_no_backlog(tmp_path: Path) -> None:
    with_logs(tmp_path / "ck", 3, committed=3)
    for batch in range(3):
        (tmp_path / f"{batch}.json").touch()
        listed = {"path": f"file://{tmp_path}/{batch}.json", "timestamp": 1, "batchId": batch}
        (tmp_path / "ck" / "sources/0" / str(batch)).write_text(f"v1\n{json.dumps(listed)}")
    running = Running(Mock(), checkpoint(tmp_path / "ck", on="a"))
    assert running.files_read() == 3
    (tmp_path / "0.json").unlink()
    assert running.files_read() == 2


def test_files_of_a_batch_are_found_by_offset_not_by_number(tmp_path: Path) -> None:
    """A micro-batch without input has a number and no entry in the source's log."""
    with_logs(tmp_path / "ck", 2, committed=2)
    (tmp_path / "ck" / "offsets" / "2").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":1}')
    (tmp_path / "ck" / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":2}')
    listed = {"path": "file:///in/late%20one", "timestamp": 1, "batchId": 2}
    (tmp_path / "ck" / "sources/0/2").write_text(f"v1\n{json.dumps(listed)}")
    held = checkpoint(tmp_path / "ck", on="a")
    assert [str(path) for path, _ in held.inputs.of(3, 3)] == ["/in/late one"]
    assert held.inputs.of(2, 2) == []
    held.close()


@dataclass(frozen=True)
class Terms(Plan):
    """A plan with a budget."""

    memory: int = 1

    def identity(self) -> dict[str, str]:
        return {"on": "a"}


@dataclass(frozen=True)
class First(Terms):
    """A plan that gives numbers."""

    begun_with: ClassVar[tuple[str, ...]] = ("first",)
    first: int = 0


def test_output_older_or_newer_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    with_logs(tmp_path / "ck", 2, committed=1)
    held = checkpoint(tmp_path / "ck", on="a")
    ledger = Ledger(tmp_path / "out", held.id)
    ledger.claim()
    agree(held, ledger)
    agree(held, ledger)  # stopped again before its first batch
    for batch in (1, 2):
        ledger.commit(batch, [])
    with pytest.raises(SinkDamaged, match=r"has batch 2, and the checkpoint .* has got to 1"):
        agree(held, ledger)
    (tmp_path / "ck" / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    elsewhere = Ledger(tmp_path / "unmounted", held.id)
    elsewhere.claim()
    with pytest.raises(SinkDamaged, match="does not have batch 1"):
        agree(held, elsewhere)
    held.close()


def test_channel_may_be_left_out_for_a_while(tmp_path: Path) -> None:
    with_logs(tmp_path / "ck", 3, committed=1)
    held = checkpoint(tmp_path / "ck", on="a")
    results, aside = (Ledger(tmp_path / name, held.id) for name in ("results", "aside"))
    both = {"results": results, "set_aside": aside}
    for starts, batch in ((both, 1), ({"results": results}, 2), (both, 3)):
        for ledger in starts.values():
            ledger.claim()
        check_agreement(held, Terms(), starts)  # type: ignore[arg-type]
        for ledger in starts.values():
            ledger.commit(batch, [])
        (tmp_path / "ck" / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert aside.batches() == [1, 3]
    held.close()


def test_batch_that_is_half_done_is_finished_on_the_same_terms(tmp_path: Path) -> None:
    """With another budget it could leave other rows waiting than those whose results are in the output already."""
    with_logs(tmp_path / "ck", 2, committed=1)
    held = checkpoint(tmp_path / "ck", on="a")
    ledger = Ledger(tmp_path / "out", held.id)
    ledger.claim()
    agree(held, ledger, memory=1)
    agree(held, ledger, memory=2)  # batch 1 is planned, and nothing of it is in the output
    ledger.commit(1, [])
    with pytest.raises(CheckpointMismatch, match=r"Batch 1 is in the output(.|\n)*memory was 2 and is now 3"):
        agree(held, ledger, memory=3)
    agree(held, ledger, memory=2)
    (tmp_path / "ck" / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    agree(held, ledger, memory=3)
    held.close()


def test_batch_of_which_nothing_is_in_the_output_is_begun_anew(tmp_path: Path) -> None:
    """What was greater than all numbers of a table when it was begun is perhaps one of them by now."""
    with_logs(tmp_path / "ck", 2, committed=1)
    held = checkpoint(tmp_path / "ck", on="a")
    ledgers = {name: Ledger(tmp_path / name, held.id) for name in ("results", "assigned")}
    for ledger in ledgers.values():
        ledger.claim()

    def started(first: int) -> int:
        return as_begun(held, First(first=first), ledgers).first  # type: ignore[arg-type, attr-defined]

    assert [started(100), started(200)] == [100, 200], "batch 1 is planned, and nothing of it is in the output"
    ledgers["results"].commit(1, [])
    assert started(300) == 200, "it is half done"
    (tmp_path / "ck" / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert started(300) == 300
    held.close()


@pytest.mark.parametrize("name", ["penstock-sinks.json", "penstock-terms.json"])
def test_what_is_remembered_of_outputs_cut_or_changed_is_refused(tmp_path: Path, name: str) -> None:
    held = checkpoint(tmp_path / "ck", on="a")
    ledger = Ledger(tmp_path / "out", held.id)
    ledger.claim()
    agree(held, ledger)
    path = tmp_path / "ck" / name
    for body in damaged(path.read_bytes()):
        path.write_bytes(body)
        with pytest.raises(CheckpointDamaged, match=name):
            agree(held, ledger)
    held.close()


def agree(held: Checkpoint, ledger: Ledger, memory: int = 1) -> None:
    check_agreement(held, Terms(memory=memory), {"results": ledger})  # type: ignore[arg-type]


# -- the state that Spark keeps ----------------------------------------------------------------------------------------


def hadoop(path: Path, body: bytes) -> None:
    """A file as Hadoop writes it on a local disk, with its checksums."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    sums = b"".join(zlib.crc32(body[at : at + 512]).to_bytes(4, "big") for at in range(0, len(body), 512))
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + sums)


def with_state(path: Path) -> None:
    """Three batches done, a snapshot after the first: the next batch loads version 3."""
    with_logs(path, 3, committed=3)
    said = '{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"2"}}'
    (path / "offsets" / "2").write_text(f'v1\n{said}\n{{"logOffset":2}}')
    for partition in ("0", "1"):
        place = path / "state" / "0" / partition
        for version in (1, 2, 3):
            hadoop(place / f"{version}.changelog", b"changes " * 70)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as snapshot:
            snapshot.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"000008-x.sst"}]}')
        hadoop(place / "1.zip", archive.getvalue())
        hadoop(place / "SSTs" / "000008-x.sst", b"rows")


@pytest.mark.parametrize("name", ["0/1.zip", "1/2.changelog", "0/3.changelog", "1/SSTs/000008-x.sst"])
def test_state_cut_changed_or_missing_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with_state(tmp_path / "ck")
    checkpoint(tmp_path / "ck", on="a").close()
    path = tmp_path / "ck" / "state" / "0" / name
    for body in list(damaged(path.read_bytes()))[::7]:
        path.write_bytes(body)
        with pytest.raises(CheckpointDamaged, match=f"{name} is cut short or changed"):
            checkpoint(tmp_path / "ck", on="a")
    path.unlink()
    if path.suffix == ".zip":  # without its snapshot all changes since the beginning are asked for
        path, name = path.with_suffix(".changelog"), "0/1.changelog"
        path.unlink()
    with pytest.raises(CheckpointDamaged, match=f"{name} is missing"):
        checkpoint(tmp_path / "ck", on="a")


def test_state_of_a_plan_that_keeps_nothing_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_state(tmp_path / "ck")
    shutil.rmtree(tmp_path / "ck" / "state")
    with pytest.raises(CheckpointDamaged, match="is missing"):
        checkpoint(tmp_path / "ck", on="a")
    monkeypatch.setattr(Plan, "keeps_nothing", True)
    checkpoint(tmp_path / "ck", on="a").close()


def test_state_that_is_not_needed_any_more_is_not_asked_for(tmp_path: Path) -> None:
    with_state(tmp_path / "ck")
    (tmp_path / "ck" / "state" / "0" / "0" / "1.changelog").unlink()
    checkpoint(tmp_path / "ck", on="a").close()


def test_state_without_checksums_is_left_to_spark_but_must_be_there(tmp_path: Path) -> None:
    with_state(tmp_path / "ck")
    for sums in (tmp_path / "ck" / "state").rglob(".*.crc"):
        sums.unlink()
    checkpoint(tmp_path / "ck", on="a").close()
    shutil.rmtree(tmp_path / "ck" / "state" / "0" / "1")
    with pytest.raises(CheckpointDamaged, match=r"1/1\.changelog is missing"):
        checkpoint(tmp_path / "ck", on="a")


def test_what_spark_says_of_lost_state_becomes_one_line_and_a_remedy() -> None:
    said = (
        "[STREAM_FAILED] x [CANNOT_LOAD_STATE_STORE.X] Error of file:/ck/state/0/0/3.changelog does not exist. More\n"
    )
    found = cause(RuntimeError(said * 50))
    assert isinstance(found, StateDamaged)
    assert str(found).startswith("/ck/state/0/0/3.changelog cannot be read back.")
    assert "Restore the checkpoint" in str(found)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            "PythonException: thrown:\nTraceback (…):\n  File x\n    f()\nValueError: my own\n SQLSTATE",
            "ValueError: my own",
        ),
        (
            "\tat org.a\nCaused by: a.B: c\n\tat org.b\nCaused by: a.Root: no Parquet\n\t... 9 more\n",
            "a.Root: no Parquet",
        ),
    ],
)
def test_what_is_not_ours_ends_in_one_line_of_what_went_wrong(
    said: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.failures.log_file", lambda: "some.log")
    failure = RuntimeError(f"[STREAM_FAILED] x {said}\n=== Streaming Query ===\n x\nLogical: plan")
    assert cause(cause(failure)) is failure
    assert len(failure.__notes__) == 3, "each is told once"
    assert failure.__notes__[0] == f"In short: {fault}"
    assert "start again with the same checkpoint" in failure.__notes__[1]


def test_second_process_is_refused(tmp_path: Path) -> None:
    held = checkpoint(tmp_path / "ck", on="a")
    program = (
        "import sys; from penstock.spark.checkpoint import Checkpoint\n"
        "plan = type('Plan', (), {'keeps_nothing': False, 'identity': lambda self: {'on': 'a'}})()\n"
        f"Checkpoint({str(tmp_path / 'ck')!r}, plan)"
    )
    second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    held.close()
    assert f"in use by process {os.getpid()}" in second.stderr
    subprocess.run([sys.executable, "-c", program], check=True)
