"""A function is known again by what it does, and not by where it stands."""

from __future__ import annotations

import functools

import pytest

from penstock.kernels.function_text import function_text


def made(body: str, **around: object):
    """A function from its source, in a module with these globals."""
    exec(body, around)
    return around["f"]


@pytest.mark.parametrize(
    "other",
    [
        "def f(a, b):\n    return a >= LIMIT",
        "def f(a, b):\n    return a > 4",
        "def f(a, b):\n    return b > LIMIT",
        "def f(a, b=1):\n    return a > LIMIT",
        "f = lambda a, b: [one > LIMIT for one in a]",
    ],
)
def test_another_function_is_another_text(other):
    assert function_text(made("def f(a, b):\n    return a > LIMIT", LIMIT=3)) != function_text(made(other, LIMIT=3))


def test_words_about_it_are_no_part_of_it():
    said = 'def f(a, b):\n    """Says why."""\n\n    # and how\n    return a > LIMIT'
    assert function_text(made("def f(a, b):\n    return a > LIMIT", LIMIT=3)) == function_text(made(said, LIMIT=3))


@pytest.mark.parametrize("body", ["f = lambda a, b: a > LIMIT", "f = lambda a, b: any(one > LIMIT for one in a)"])
def test_values_that_it_finds_in_its_module_are_part_of_it(body):
    assert function_text(made(body, LIMIT=3)) == function_text(made(body, LIMIT=3, other=1))
    assert function_text(made(body, LIMIT=3)) != function_text(made(body, LIMIT=4))


def test_a_value_that_is_not_there_yet_is_no_fault():
    def predicate(a, b):
        return a > limit

    said = function_text(predicate)
    limit = 3
    assert function_text(predicate) != said


def test_whatever_can_be_called_has_a_text():
    class Above:
        def __init__(self, limit):
            self.limit = limit

        def __call__(self, a, b):
            return a > self.limit

        def asked(self, a, b):
            return a > self.limit

    for make in (Above, lambda n: Above(n).asked, lambda n: functools.partial(max, n)):
        assert function_text(make(1)) == function_text(make(1)) != function_text(make(2))
    assert function_text(len).startswith("len, code ")
