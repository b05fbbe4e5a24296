"""The directory of a view: manifests that are whole or not there, and files that nobody needs any more."""

import shutil
import time

import pyarrow as pa
import pytest

from penstock.errors import PlanError, ViewDamaged, ViewInUse
from penstock.spark.views import store as stores
from penstock.spark.views.store import KEPT, File, Manifest, Store, TableVersion

ROWS = pa.table({"x": [1, 2, 3]})


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "view")
    assert made.open({"query": "q"}) is None
    yield made
    made.close()


def version(store: Store, number: int, before: Manifest | None = None) -> Manifest:
    """A version with a part and a state of its own."""
    part = store.write_part("t", ROWS, number)
    folder = store.new_state(number)
    folder.mkdir()
    state = store.write_part("t", ROWS, number)
    moved = folder / "state.parquet"
    (store.place / "tables" / "t" / state.path.rsplit("/", 1)[1]).rename(moved)
    table = TableVersion((), (part,), (f"{number}.parquet",), number, 0)
    made = Manifest(number, time.time(), {"t": table}, (File.of(moved),), {"t": 1.5})
    store.commit(made)
    store.sweep(made)
    return made


def test_what_was_committed_is_read_back(store):
    made = version(store, 0)
    assert store.last() == made
    assert [file.rows for file in made.files()] == [3, 3]


def test_a_manifest_that_is_cut_anywhere_is_refused(store):
    version(store, 0)
    [path] = (store.place / "manifest").glob("*.json")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ViewDamaged, match="cut or changed"):
            store.last()
    path.write_bytes(whole)
    assert store.last() is not None


def test_groups_of_a_newer_format_are_refused(store, monkeypatch):
    version(store, 0)
    monkeypatch.setattr(stores, "FORMAT", 0)
    with pytest.raises(ViewDamaged, match="newer version of Penstock"):
        store.last()


def test_files_stay_as_long_as_a_kept_version_needs_them(store):
    made = [version(store, number) for number in range(2)]
    store.hold(0)
    made += [version(store, number) for number in range(2, 7)]
    there = [
        all(File.of(stores.Path(f.path), f.rows) == f for f in one.files()) if _has(one) else False for one in made
    ]
    assert there == [True, *[False] * (6 - KEPT), *[True] * KEPT]
    store.release(0)
    version(store, 7)
    assert not _has(made[0])


def _has(manifest: Manifest) -> bool:
    return all(stores.Path(file.path).exists() for file in manifest.files())


def test_what_a_crash_left_is_swept_away(store, tmp_path):
    made = version(store, 0)
    left = store.write_part("t", ROWS, 1)
    folder = store.new_state(1)
    folder.mkdir()
    (folder / "x.parquet").touch()
    store.close()
    again = Store(tmp_path / "view")
    assert again.open({"query": "q"}) == made
    assert not stores.Path(left.path).exists()
    assert not folder.exists()
    assert _has(made)
    again.close()


def test_what_is_set_aside_is_there_once(store, tmp_path):
    made = version(store, 0)
    aside = store.place / "aside" / "t"
    for _ in range(2):
        store.sweep(made)  # the step failed, and is done again
        store.write_part("t", ROWS, 1, kind="aside")
    assert len(list(aside.iterdir())) == 1
    version(store, 1)
    store.write_part("t", ROWS, 2, kind="aside")
    store.close()  # killed before the version was there
    again = Store(tmp_path / "view")
    again.open({"query": "q"})
    assert [path.name.split("-")[1] for path in aside.iterdir()] == [f"{1:012d}"]
    again.close()


def test_a_missing_or_changed_file_is_named(store, tmp_path):
    made = version(store, 0)
    store.close()
    path = stores.Path(made.state[0].path)
    kept = path.read_bytes()
    path.write_bytes(kept + b"x")
    with pytest.raises(ViewDamaged, match=r"state.parquet was changed"):
        Store(tmp_path / "view").open({"query": "q"})
    path.unlink()
    with pytest.raises(ViewDamaged, match=r"state.parquet is missing"):
        Store(tmp_path / "view").open({"query": "q"})


def test_a_directory_may_have_another_name(store, tmp_path):
    """Opened by a link, moved, or copied without the times of its files: nothing of it is swept away."""
    made = version(store, 0)
    store.close()
    (tmp_path / "link").symlink_to(tmp_path / "view")
    shutil.copytree(tmp_path / "view", tmp_path / "copied", copy_function=shutil.copyfile)
    for name in ("link", "copied", "moved"):
        if name == "moved":
            (tmp_path / "view").rename(tmp_path / "moved")
        again = Store(tmp_path / name)
        last = again.open({"query": "q"})
        assert last is not None
        assert [file.path.replace(f"/{name}/", "/view/") for file in last.files()] == [f.path for f in made.files()]
        assert _has(last)
        again.close()


def test_another_view_and_another_process_are_refused(store, tmp_path):
    with pytest.raises(ViewInUse):
        Store(tmp_path / "view").open({"query": "q"})
    store.close()
    with pytest.raises(PlanError, match="Different are: query"):
        Store(tmp_path / "view").open({"query": "r"})


def _written_and_committed(store: Store) -> None:
    store.written(store.new_state(1))
    version(store, 1)


@pytest.mark.parametrize("point", [*stores.CRASH_POINTS])
def test_a_crash_anywhere_leaves_the_old_version_or_the_new(store, tmp_path, monkeypatch, point):
    before = version(store, 0)

    def die(name):
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr(stores, "crash_point", die)
    with pytest.raises(KeyboardInterrupt):
        _written_and_committed(store)
    store.close()
    monkeypatch.undo()
    again = Store(tmp_path / "view")
    last = again.open({"query": "q"})
    assert last is not None
    assert last.version == (1 if point == "view-after-manifest" else 0)
    assert last == before or last.version == 1
    again.close()
