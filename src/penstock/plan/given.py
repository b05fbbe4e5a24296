"""What people give an operator: names of columns, and tables that were opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import BadOption
from penstock.tables.base import Table

Names = str | Sequence[str]


def column_names(given: Any, *, option: str = "on") -> tuple[str, ...]:
    """One column, or several, as a tuple; `option` is the name to blame in the error.

    >>> column_names("id"), column_names(["market", "id"]), column_names(())
    (('id',), ('market', 'id'), ())
    """
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadOption(
            f"{option}={shown(given)} does not name columns.", do=f'Give a name, or a list of names: {option}="id".'
        )
    return tuple(names)


def renaming(name: str, to: str, where: str = "one of them") -> str:
    """What to do about a column whose name both sides of a join have, in a program and in a pipeline's file.

    >>> renaming("price", "right_price").split(". ")[0]
    "Rename it in one of them first: .withColumnRenamed('price', 'right_price')"
    """
    return (
        f"Rename it in {where} first: .withColumnRenamed({name!r}, {to!r}). In a pipeline's file, give the query as "
        f"sql, which names its columns (… AS {to}), or leave it out of the columns = {{ … }} of a stream."
    )


def check_table(given: Any, example: str = 'penstock.table("products/", key="product_id")') -> None:
    """Refuse a table that was not opened, with the line that opens one."""
    if not isinstance(given, Table):
        said = kind_of(given)
        raise BadOption(f"{said[0].upper()}{said[1:]} is not a table.", do=f"Open it first: {example}.")


def kind_of(given: Any) -> str:
    """What something is, in words.

    >>> kind_of("orders/"), kind_of(None), kind_of([1])
    ("a text ('orders/')", 'None', 'a list')
    """
    if isinstance(given, str):
        return f"a text ({given[:40]!r})"
    if given is None:
        return "None"
    kind = type(given)
    home = kind.__module__.partition(".")[0]
    return (
        f"{'an' if home[0] in 'aeio' else 'a'} {home} {kind.__name__}" if home != "builtins" else f"a {kind.__name__}"
    )


def shown(given: Any) -> str:
    """A value as an error shows it: as it is written, or what it is where that takes more than a line.

    >>> shown(5), shown(["a", "b"]), shown("x" * 100)
    ('5', "['a', 'b']", "a text ('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')")
    """
    text = repr(given)
    return text if len(text) <= 60 and "\n" not in text else kind_of(given)
