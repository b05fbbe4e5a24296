"""Kernels and cases are found; what has no case is named."""

import textwrap

import pytest
from hypothesis import strategies as st

from penstock.errors import BadOption
from penstock.kernels.passthrough import PassThrough
from penstock.testing import case as cases
from penstock.testing.conformance import Case, discover, load_cases, register, uncovered
from penstock.testing.strategies import streams

KERNEL = """
from penstock.kernels.passthrough import PassThrough
from penstock.kernels.contract import Kernel

class {name}(PassThrough):
    pass

class Unfinished(Kernel):
    pass
"""
CASE = """
from hypothesis import strategies as st
from penstock.kernels.passthrough import PassThrough
from penstock.testing.conformance import Case, register

register(Case("{name}", PassThrough, st.none(), None, None, None))
"""


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(cases, "CASES", {})
    monkeypatch.setattr(cases, "_homes", {})
    return lambda: cases.CASES


def write(path, text, **names):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).format(**names))


def test_concrete_kernels_are_found_where_they_are_defined(tmp_path, monkeypatch):
    root = tmp_path / "found_kernels"
    write(root / "__init__.py", KERNEL, name="AtTheTop")
    write(root / "family" / "deep.py", KERNEL, name="InAFolderWithoutInit")
    monkeypatch.syspath_prepend(tmp_path)
    found = discover("found_kernels")
    assert [cls.__name__ for cls in found] == ["AtTheTop", "InAFolderWithoutInit"]
    assert uncovered(found, []) == ["found_kernels.AtTheTop", "found_kernels.family.deep.InAFolderWithoutInit"]


def test_a_case_covers_its_own_class_alone():
    case = Case("x", PassThrough, st.none(), None, lambda plan: streams("integer"), None)
    assert uncovered([PassThrough], [case]) == []
    assert uncovered([type("Heir", (PassThrough,), {})], [case]) != []


def test_a_folder_of_cases_is_loaded_once(tmp_path, registry):
    write(tmp_path / "one.py", CASE, name="one")
    write(tmp_path / "_helper.py", "raise RuntimeError")
    load_cases(tmp_path)
    load_cases(tmp_path)
    assert list(registry()) == ["one"]


def test_a_broken_file_of_cases_is_not_hidden(tmp_path, registry):
    write(tmp_path / "broken.py", "raise RuntimeError('broken')")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            load_cases(tmp_path)


def test_two_cases_of_one_name_are_refused(tmp_path, registry):
    case = Case("same", PassThrough, st.none(), None, None, None)
    register(case)
    with pytest.raises(BadOption, match="There already is a case 'same'"):
        register(case)
    write(tmp_path / "other.py", CASE, name="same")
    with pytest.raises(BadOption, match="test_discovery"):
        load_cases(tmp_path)


def test_a_file_imported_under_a_second_name_registers_its_cases_again(tmp_path, registry):
    write(tmp_path / "one.py", CASE, name="one")
    load_cases(tmp_path)
    exec(compile((tmp_path / "one.py").read_text(), tmp_path / "one.py", "exec"), {"__name__": "tests.one"})
    assert list(registry()) == ["one"]
