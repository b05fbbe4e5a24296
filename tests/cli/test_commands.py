"""The commands that start no JVM: what they say, what they write, and how they fail."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps


def test_version(run):
    assert run("--version") == (0, f"penstock {ps.__version__}\n")


def test_help_names_every_command_with_what_it_does(run):
    code, said = run("--help")
    assert "..." not in said.partition("Commands")[2], "a summary that is cut off"
    assert code == 0
    for command in ("demo", "prepare", "table"):
        assert f"  {command} " in said
        assert run(command, "--help")[0] == 0


def test_without_a_command_there_is_help(run):
    assert "Commands:" in run()[1]


def test_help_loads_nothing_heavy():
    heavy = ("pyspark", "pandas", "numpy", "pyarrow", "numba", "rich", "matplotlib")
    program = (
        "import sys; from penstock.cli.app import app; app(['--help'], standalone_mode=False);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_module_and_script_are_the_same_command():
    done = subprocess.run([sys.executable, "-m", "penstock", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"penstock {ps.__version__}\n"


@pytest.mark.parametrize("locale", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_init_and_check_where_the_encoding_is_not_utf8(tmp_path, locale):
    (tmp_path / "sales.csv").write_text("id,Preis €\n1,2.5\n", encoding="utf-8")
    where = {"cwd": tmp_path, "env": {**os.environ, "LC_ALL": "C", **locale}, "capture_output": True}
    for command in (["init", "--stream", "sales.csv"], ["check", "pipeline.toml"]):
        done = subprocess.run([sys.executable, "-m", "penstock", *command], check=False, **where)
        assert done.returncode == 0, done.stderr.decode()
        assert b"Preis ?" in done.stdout
    assert "Preis €" in (tmp_path / "pipeline.toml").read_text(encoding="utf-8")


def test_prepare_writes_a_table_and_says_how_to_use_it(run, products, tmp_path):
    target = tmp_path / "prepared"
    code, said = run("prepare", products, target, "--key", "product_id", "--page", "16KB")
    assert code == 0, said
    prepared = ps.table(target, key="product_id")
    assert (prepared.rows, prepared.by_key(0, 1) is not None) == (5000, True)
    assert f"5,000 rows in {len(prepared.pages)} pages" in said
    assert f'ps.table("{target}", key="product_id")' in said
    assert 'on="product_id"' in said


@pytest.mark.parametrize("key", [("-k", "product_id, shop"), ("--key", "product_id", "--key", "shop")])
def test_prepare_by_several_columns(run, products, tmp_path, key):
    code, said = run("prepare", products, tmp_path / "prepared", *key)
    assert code == 0, said
    assert ps.table(tmp_path / "prepared", key=["product_id", "shop"]).rows == 5000
    assert 'key=["product_id", "shop"]' in said


def test_a_key_may_have_a_comma_in_its_name(run, tmp_path):
    pq.write_table(pa.table({"size, cm": [1, 2], "market": ["a", "b"]}), tmp_path / "sizes.parquet")
    code, said = run("table", str(tmp_path / "sizes.parquet"), "--key", 'market,"size, cm"')
    assert code == 0
    assert [line.split()[-1] for line in said.splitlines() if line.startswith(("size, cm", "market"))] == [
        "2",
        "1",
    ]


def test_a_target_that_cannot_be_is_told_with_what_to_do(run, products, tmp_path):
    (tmp_path / "file").touch()
    code, said = run("prepare", products, tmp_path / "file" / "below", "--key", "product_id")
    assert code == 1
    assert "cannot be written: Not a directory" in said
    assert "Name a target" in said


def test_smaller_pages_are_more_pages(run, products, tmp_path):
    for page in ("4KB", "1MB"):
        run("prepare", products, tmp_path / page, "--key", "product_id", "--page", page)
    pages = [len(ps.table(tmp_path / page, key="product_id").pages) for page in ("4KB", "1MB")]
    assert pages[0] > pages[1]


def test_table_shows_rows_pages_columns_and_the_smallest_memory(run, products):
    code, said = run("table", products, "--key", "product_id", "--slots", "2")
    assert code == 0, said
    for words in ("5,000", "5 of 1,000 to 1,000 rows", "a page is a row group", "at least memory=", "price", "double"):
        assert words in said


def test_the_smallest_memory_is_enough_and_a_little_less_is_not(run, products):
    from penstock.errors import MemoryTooSmall
    from penstock.plan.join_table import JoinTablePlan
    from penstock.plan.units import parse_size

    said = run("table", products, "--key", "product_id", "--slots", "2")[1]
    least = parse_size(said.split('memory="')[1].split('"')[0])
    table = ps.table(products, key="product_id")
    stream = table.schema.remove(1).remove(1).remove(1)
    make = {"on": ("product_id",), "slots": 2}
    JoinTablePlan.checked(stream, table, memory=least, **make)
    with pytest.raises(MemoryTooSmall):
        JoinTablePlan.checked(stream, table, memory=int(least * 0.9), **make)


def test_table_of_a_prepared_table(run, products, tmp_path):
    run("prepare", products, tmp_path / "prepared", "--key", "product_id")
    code, said = run("table", tmp_path / "prepared", "--key", "product_id")
    assert code == 0, said
    assert "ordered by key hash" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("table", "{products}", "-k", "prodct_id"), ("UnknownColumn:", "Did you mean 'product_id'")),
        (("table", "{products}s", "-k", "product_id"), ("UnreadableTable:", "does not exist", "has 'products'")),
        (("table", "{products}", "-k", ","), ("BadOption:",)),
        (("prepare", "{products}", "{out}", "-k", "product_id", "--page", "big"), ("BadOption:", "big")),
        (("prepare", "{products}", "{out}", "-k", "product_id", "--page", "12B"), ("BadOption:", "4 KB")),
        (("prepare", "{products}", "{products}", "-k", "product_id"), ("BadOption:",)),
        (("demo", "--memory", "64"), ("BadOption:", "The unit is missing")),
    ],
)
def test_an_error_is_short_text_and_code_1(run, products, tmp_path, arguments, words):
    filled = [argument.format(products=products, out=tmp_path / "out") for argument in arguments]
    code, said = run(*filled)
    assert code == 1
    assert "Traceback" not in said
    for word in words:
        assert word in said
    assert not (tmp_path / "out").exists()


def test_a_missing_option_is_a_usage_error(run, products):
    assert run("table", products)[0] == 2
