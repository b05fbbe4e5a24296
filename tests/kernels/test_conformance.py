"""Every kernel of Penstock is found, has a case, and answers the five questions."""

from pathlib import Path

import pytest
from hypothesis import settings

from penstock.testing.conformance import CASES, discover, load_cases, questions_for, uncovered

load_cases(Path(__file__).parent / "cases")


def test_every_kernel_has_a_case():
    missing = uncovered(discover(), CASES.values())
    assert not missing, f"add a case in tests/kernels/cases/ (see penstock.testing.conformance) for: {missing}"


def test_the_pass_through_kernel_is_found():
    assert "penstock.kernels.passthrough.PassThrough" in uncovered(discover(), [])


ASKED = [(name, words) for name, case in CASES.items() for words in questions_for(case)]


@pytest.mark.parametrize(("name", "words"), ASKED)
def test_kernel_is(name, words):
    # Half of the profile's examples: the same kernel is asked four other questions, of other examples.
    questions_for(CASES[name])[words](CASES[name], settings().max_examples // 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), ASKED)
def test_kernel_is_also_in_many_examples(name, words):
    questions_for(CASES[name])[words](CASES[name], settings().max_examples * 2)
