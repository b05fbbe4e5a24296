"""From text to sqlglot's tree, with clauses of our own cut off the end.

::

    [EXPLAIN] [CREATE VIEW name AS] SELECT …
        [WINDOW 1 MINUTE | WINDOW 500 ROWS] [MEMORY 64 MB] [SHED PROB [AFTER 10 SECONDS]] [ARCHIVE 'path']
        [ANSWER WITHIN 12 SECONDS] [;]

Clauses are found among the tokens, not in the text: a string or a comment that looks like one is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import BadOption, BadSQL, PlanError
from penstock.plan.units import parse_duration, parse_size

#: Longer texts are refused before they are read, and so is what is nested more deeply.
LONGEST = 20_000
DEEPEST = 40
_NAME = re.compile(r"[^\W\d]\w{0,62}")
#: Straight texts, and the quotes that word processors and papers print.
_QUOTES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|([‘’])")


class Penstock(Dialect):
    """Standard SQL, with ≠, ≤ and ≥ as papers print them."""

    class Tokenizer(tokens.Tokenizer):
        """Reads single marks as operators, and no statement as a whole."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
            **tokens.Tokenizer.SINGLE_TOKENS,
            "≠": TokenType.NEQ,
            "≤": TokenType.LTE,
            "≥": TokenType.GTE,
        }


@dataclass(frozen=True)
class Clause:
    """A clause of ours: its value, and where it stands."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True)
class Statement:
    """A text, taken apart. `select` is sqlglot's tree of the SELECT, `clauses` are by name, in lower case."""

    text: str
    select: Any
    clauses: dict[str, Clause]
    explain: bool = False
    view: str | None = None
    #: Where SELECT stands.
    begin: int = 0

    def at(self, name: str, what: str, *, why: str = "", do: str = "") -> BadSQL:
        """An error at a clause, or at the end of the text if it is missing."""
        end = len(self.text.rstrip().rstrip(";").rstrip())
        clause = self.clauses.get(name, Clause(None, end, end + 1))
        return BadSQL(what, why=why, do=do, text=self.text, start=clause.start, end=clause.end)


def take_apart(text: str, functions: Iterable[str] = ()) -> Statement:
    """The statement in a text, where calls of `functions` are calls of these. Raises `BadSQL`."""
    if len(text) > LONGEST:
        raise BadSQL(f"The text has {len(text):,} characters.", why=f"At most {LONGEST:,} are read.", text=text)
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise BadSQL("The text has half a character.", do="Leave it out.", text=text, start=fault.start) from None
    found = _tokens(text)
    _check_depth(text, found)
    while found and found[-1].token_type == TokenType.SEMICOLON:
        found.pop()
    if not found:
        raise BadSQL("There is no query.", do="Write SELECT … FROM …", text=text)
    extra = next((token for token in found if token.token_type == TokenType.SEMICOLON), None)
    if extra is not None:
        raise _at(text, extra, "There is more than one statement.", do="Give one at a time.")
    explain = found[0].text.upper() == "EXPLAIN"
    found = found[1:] if explain else found
    found, view = _view(text, found)
    if not found or found[0].token_type != TokenType.SELECT:
        token = found[0] if found else None
        raise _at(text, token, "A query is a SELECT.", do="Write SELECT … FROM …, or CREATE VIEW name AS SELECT …")
    cut = _cut(text, found)
    _check_numbers(text, found, cut)
    clauses = _clauses(text, found[cut:])
    return Statement(text, _parse(text, found[:cut], functions), clauses, explain, view, found[0].start)


def _tokens(text: str) -> list[Token]:
    straight = _QUOTES.sub(lambda match: "'" if match[1] else match[0], text)
    try:
        return list(Penstock().tokenize(straight))
    except SqlglotError:
        raise BadSQL(
            "A text or a comment has no end.",
            do="Texts stand between ' and ', names between \" and \".",
            text=text,
            start=_open_quote(straight),
        ) from None
    except (ValueError, IndexError, RecursionError) as fault:
        raise BadSQL("The text cannot be read.", why=str(fault).splitlines()[0], text=text) from None


def _open_quote(text: str) -> int:
    """Where the quote or comment begins that has no end."""
    rest = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", lambda m: " " * len(m[0]), text, flags=re.S)
    places = [place for mark in ("'", '"', "/*", "`") if (place := rest.find(mark)) >= 0]
    return min(places, default=0)


def _check_depth(text: str, found: list[Token]) -> None:
    depth = 0
    for token in found:
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END):
            depth -= 1
        if depth > DEEPEST:
            raise _at(text, token, "The text is nested too deeply.", why=f"At most {DEEPEST} levels are read.")


def _check_numbers(text: str, found: list[Token], cut: int) -> None:
    for place, (number, after) in enumerate(pairwise(found)):
        if number.token_type != TokenType.NUMBER or after.start != number.end + 1:
            continue
        # Read as SQL has it, 1_000 would be 1 under the name _000, and 10k 10 under the name k. Clauses have units.
        if after.text.startswith("_") or (place < cut and after.token_type == TokenType.VAR):
            raise _at(
                text, number, f"{number.text}{after.text} is not a number.", do="Write its digits, and nothing else."
            )


def _view(text: str, found: list[Token]) -> tuple[list[Token], str | None]:
    if found and found[0].token_type != TokenType.CREATE:
        return found, None
    words = [token.text.upper() for token in found[:4]]
    if len(words) < 4 or words[1] != "VIEW" or words[3] != "AS" or found[2].token_type == TokenType.STRING:
        wrong = next((n for n, want in ((1, "VIEW"), (3, "AS")) if n >= len(words) or words[n] != want), 2)
        token = found[wrong] if wrong < len(found) else None
        raise _at(text, token, "CREATE is for views.", do="Write CREATE VIEW name AS SELECT … ANSWER WITHIN 12 SECONDS")
    if not _NAME.fullmatch(found[2].text):
        # It names a directory, too.
        raise _at(
            text,
            found[2],
            "This is not a name of a view.",
            do="Letters, digits and underscores, a letter first; 63 at most.",
        )
    return found[4:], found[2].text


def _cut(text: str, found: list[Token]) -> int:
    """Where clauses of ours begin: no other SQL has these words with what follows them."""
    depth = 0
    for number, token in enumerate(found):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        after = found[number + 1] if number + 1 < len(found) else None
        if depth or number == 0 or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if found[number - 1].token_type in (TokenType.DOT, TokenType.COMMA, TokenType.ALIAS, TokenType.SELECT):
            continue
        expects = _FOLLOWED_BY.get(token.text.upper())
        if expects is not None and after is not None and expects(after):
            return number
        if token.token_type == TokenType.WINDOW and (after is None or after.token_type != TokenType.ALIAS):
            raise _at(
                text,
                after or token,
                "WINDOW is followed by how long rows wait for partners.",
                do="Write WINDOW 1 MINUTE, or WINDOW 500 ROWS.",
            )
    return len(found)


def _number(token: Token) -> bool:
    return token.token_type == TokenType.NUMBER


_FOLLOWED_BY: dict[str, Callable[[Token], bool]] = {
    "WINDOW": _number,
    "MEMORY": _number,
    # Not any word: a column may be called so, and be followed by FROM or AND.
    "SHED": lambda token: token.token_type == TokenType.VAR,
    "ARCHIVE": lambda token: token.token_type == TokenType.STRING,
    "ANSWER": lambda token: token.text.upper() == "WITHIN",
}


def _begins(token: Token) -> bool:
    return token.token_type != TokenType.STRING and token.text.upper() in _FOLLOWED_BY


def _clauses(text: str, found: list[Token]) -> dict[str, Clause]:
    clauses: dict[str, Clause] = {}
    place = 0
    while place < len(found):
        first = found[place]
        name = first.text.upper()
        expects = _FOLLOWED_BY.get(name)
        if expects is None or place + 1 == len(found) or not expects(found[place + 1]):
            known = (
                "WINDOW 1 MINUTE, WINDOW 500 ROWS, MEMORY 64 MB, SHED PROB, ARCHIVE 'path', ANSWER WITHIN 12 SECONDS"
            )
            raise _at(
                text, first, f"{first.text} is none of the clauses at the end of a query.", do=f"They are: {known}."
            )
        end = place + 2
        while end < len(found) and not _begins(found[end]):
            end += 1
        words = found[place + 1 : end]
        if name.lower() in clauses:
            raise _at(text, first, f"{name} is there twice.", do="Leave one out.")
        try:
            value = _VALUES[name]([token.text for token in words])
        except PlanError as fault:
            # Units are told about as options of Python; here they are words of a clause.
            what = fault.what.replace("=", " ", 1) if isinstance(fault, BadOption) else fault.what
            raise BadSQL(
                what, why=fault.why, do=f"Write {_LIKE[name]}.", text=text, start=words[0].start, end=words[-1].end + 1
            ) from None
        clauses[name.lower()] = Clause(value, first.start, words[-1].end + 1)
        place = end
    return clauses


def _window(words: list[str]) -> tuple[str, int]:
    if len(words) == 2 and words[1].upper() in ("ROW", "ROWS"):
        if not (words[0].isdecimal() and 0 < int(words[0]) < 1 << 53):
            raise PlanError(f"A window of {words[0]} rows holds nothing.", do="Give a whole number above 0.")
        return "rows", int(words[0])
    length = parse_duration(" ".join(words), option="WINDOW")
    if not 0 < length < 1 << 61:
        raise PlanError("The window has no length.", do="Give a duration above zero: WINDOW 1 MINUTE.")
    return "time", length


def _shed(words: list[str]) -> tuple[str, int | None]:
    if len(words) == 1:
        return words[0].lower(), None
    if words[1].upper() != "AFTER":
        raise PlanError(
            "SHED is followed by one word.", do="Write SHED PROB; or for tables SHED TOPW AFTER 10 SECONDS."
        )
    lag = parse_duration(" ".join(words[2:]), option="AFTER")
    if lag <= 0:
        raise PlanError("AFTER no time at all every row would be shed.", do="Give a duration above zero.")
    return words[0].lower(), lag


def _path(words: list[str]) -> str:
    if len(words) != 1:
        raise PlanError("ARCHIVE is followed by one path.", do="Write ARCHIVE 'path'.")
    return words[0]


def _within(words: list[str]) -> int:
    length = parse_duration(" ".join(words[1:]), option="ANSWER WITHIN")
    if length <= 0:
        raise PlanError("ANSWER WITHIN no time at all cannot be kept.", do="Give what readers accept: 12 SECONDS.")
    return length


#: What clauses look like, for errors.
_LIKE = {
    "WINDOW": "WINDOW 1 MINUTE, or WINDOW 500 ROWS",
    "MEMORY": "MEMORY 64 MB",
    "SHED": "SHED PROB; for a table SHED TOPW AFTER 10 SECONDS",
    "ARCHIVE": "ARCHIVE 'path'",
    "ANSWER": "ANSWER WITHIN 12 SECONDS",
}

_VALUES: dict[str, Callable[[list[str]], Any]] = {
    "WINDOW": _window,
    "MEMORY": lambda words: parse_size(" ".join(words), option="MEMORY"),
    "SHED": _shed,
    "ARCHIVE": _path,
    "ANSWER": _within,
}


def _parse(text: str, found: list[Token], functions: Iterable[str]) -> Any:
    parser: Any = Penstock().parser()
    # sqlglot knows hundreds of functions, each with arguments of its own; those that a program registered are none.
    for known in ("FUNCTIONS", "FUNCTION_PARSERS", "NO_PAREN_FUNCTION_PARSERS"):
        given = {name.upper() for name in functions}
        setattr(parser, known, {name: how for name, how in getattr(parser, known).items() if name not in given})
    try:
        statements = [one for one in parser.parse(found, text) if one is not None]
    except ParseError as fault:
        said = fault.errors[0] if fault.errors else {}
        start, end = _reported(text, said, found)
        raise BadSQL(f"This is not SQL: {_said(said)}.", text=text, start=start, end=end) from None
    except RecursionError:
        raise BadSQL("The text is nested too deeply.", text=text) from None
    except (SqlglotError, ValueError, AttributeError, IndexError, KeyError, TypeError) as fault:
        # sqlglot stumbles over some texts that are no SQL; whatever it says, they are none.
        raise BadSQL("This is not SQL.", why=(str(fault).splitlines() or [""])[0], text=text) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        kind = type(statements[0]).__name__.upper() if statements else "nothing"
        place = next((token for token in found if token.text.upper() == kind), found[0])
        raise _at(
            text, place, f"A query is one SELECT, and this is {kind}.", do="Register each part as a query of its own."
        )
    return statements[0]


def _said(said: dict[str, Any]) -> str:
    what = str(said.get("description") or "it cannot be read")
    if "missing for" in what:
        return "something is missing here"
    if what.startswith("Invalid expression"):
        return "it cannot be read from here on"
    return re.split(r" but got <Token|<", what)[0].rstrip(". ").lower()


def _reported(text: str, said: dict[str, Any], found: list[Token]) -> tuple[int, int]:
    """The token that sqlglot means: it tells line and the column after it."""
    for token in found:
        if (token.line, token.col) == (said.get("line"), said.get("col")):
            return token.start, token.end + 1
    last = found[-1]
    return last.start, last.end + 1


def _at(text: str, token: Token | None, what: str, *, why: str = "", do: str = "") -> BadSQL:
    start, end = (token.start, token.end + 1) if token is not None else (len(text.rstrip()), len(text.rstrip()) + 1)
    return BadSQL(what, why=why, do=do, text=text, start=start, end=end)
