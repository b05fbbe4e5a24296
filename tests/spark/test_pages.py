"""The code on the pages of the documentation and of the README runs as it stands.

Python blocks of a page run one after the other in one namespace, in a folder that has what pages speak of; what a block
leaves running does what there is to do and is stopped. Blocks of `sh` are run if they are of `penstock`; everywhere
else commands are parsed, so that no page names an option or a task that is not there.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.app import app
from tests.spark.pages import PAGES, ROOT, blocks, end_queries, furnish, name_of, standing_in

#: Pages that run in `./dev test`; the others do with the slow tests.
QUICK = ("README.md", "docs/start/tutorial.md", "docs/operations/running.md")
#: Pages whose code speaks with a broker.
WITH_BROKER = ("docs/subscriptions.md",)


def marked(page: Path) -> object:
    marks = [pytest.mark.spark]
    if name_of(page) not in QUICK:
        marks.append(pytest.mark.slow)
    if name_of(page) in WITH_BROKER:
        marks.append(pytest.mark.services)
    return pytest.param(page, id=name_of(page), marks=marks)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    furnish(tmp_path, request.getfixturevalue("page"))
    return tmp_path


@pytest.fixture
def broker(tmp_path_factory, request):
    """Its address, where the page asks for one."""
    if name_of(request.getfixturevalue("page")) not in WITH_BROKER:
        yield None
        return
    from penstock.broker.server import NatsServer

    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server.url
    server.stop()


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if blocks(page, "python")])
def test_python_on_a_page_runs(page, spark, place, broker):
    names: dict[str, object] = {"__name__": "__page__"}
    with standing_in(place, spark), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Rows on channel")
        for number, code in enumerate(blocks(page, "python"), 1):
            if broker:
                code = code.replace("nats://localhost:4222", broker)
            try:
                exec(compile(code, f"{name_of(page)}, block {number}", "exec"), names)
            finally:
                end_queries(spark)
    if page.name == "README.md":
        joined = pq.read_table(place / "orders").join(pq.read_table(place / "products"), "product_id")
        assert pq.read_table(place / "enriched").num_rows == joined.num_rows == 300
        assert pq.read_table(place / "expensive").num_rows == sum(one > 100 for one in joined["price"].to_pylist())


@pytest.mark.parametrize("page", [pytest.param(one, id=name_of(one)) for one in PAGES if blocks(one, "sh")])
def test_commands_on_a_page_run(page, place, monkeypatch):
    monkeypatch.chdir(place)
    for line in "\n".join(blocks(page, "sh")).splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "penstock", f"{line}: blocks of sh are run; only penstock is"
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{line}\n{done.output}"


@pytest.mark.parametrize("page", [pytest.param(one, id=name_of(one)) for one in PAGES if blocks(one, "toml")])
def test_pipelines_on_a_page_are_without_fault(page, place, monkeypatch):
    monkeypatch.chdir(place)
    for block in blocks(page, "toml"):
        (place / "pipeline.toml").write_text(block)
        done = CliRunner().invoke(app, ["check", "pipeline.toml"])
        assert done.exit_code == 0, done.output


def spoken(page: Path) -> list[str]:
    """The commands that a page names: lines of blocks and what stands between backticks."""
    text = page.read_text()
    lines = [line for block in [*blocks(page, ""), *blocks(page, "sh")] for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        said
        for line in [*lines, *re.findall(r"`([^`\n]+)`", prose)]
        for said in {line.strip(), line.strip().removeprefix("./dev run ")}
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_a_page_names_are_there(page):
    commands = typer.main.get_command(app).commands
    for line in spoken(page):
        if line.startswith("penstock ") and "…" not in line and "<" not in line:
            name, *arguments = shlex.split(line, comments=True)[1:]
            if name.startswith("-"):
                continue
            assert name in commands, f"{page.name}: {line}"
            options = {option for one in commands[name].params for option in one.opts + one.secondary_opts}
            given = {word.split("=")[0] for word in arguments if word.startswith("--")}
            assert given <= options | {"--help"}, f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tasks_that_a_page_names_are_there(page):
    tasks = set(re.findall(r"^task_(\w+)\(\)", (ROOT / "dev").read_text(), re.MULTILINE))
    families = {found.parent.name for found in (ROOT / "papers").glob("*/__init__.py")}
    modules = {found.stem for found in (ROOT / "benchmarks").glob("*.py")}
    for line in spoken(page):
        words = line.split("#")[0].split()
        if words[:1] == ["./dev"] and len(words) > 1 and words[1] != "…":
            assert words[1] in tasks | {"<task>", "help"}, f"{page.name}: {line}"
            if len(words) > 2 and not words[2].startswith(("-", "…", "<")):
                if words[1] == "reproduce":
                    assert words[2] in families, f"{page.name}: {line}"
                if words[1] == "bench":
                    assert words[2].split("/")[0] in modules, f"{page.name}: {line}"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path):
    command = ["--fail-on-warning", "--keep-going", "--quiet", "-b", "html", "docs", str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-d", str(tmp_path / "trees"), *command],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"(?:https?:)?//|@import|url\((?:https?:)?//")
    for file in [*(tmp_path / "site").rglob("*.html"), *(tmp_path / "site").rglob("*.css")]:
        assert not fetched.search(file.read_text()), file
    reference = (tmp_path / "site" / "reference" / "api.html").read_text()
    import penstock

    for name in penstock.__all__:
        if not name.startswith("__"):
            assert f'id="penstock.{name}"' in reference or f"module-penstock.{name}" in reference, name
