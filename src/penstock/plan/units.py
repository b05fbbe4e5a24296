"""Sizes, durations and numbers as people write them.

Laws, each a property in `tests/plan/test_units.py`: what `format_size` and `format_duration` write can be read back;
reading it back gives the number again to within 5 %, and exactly where the number has a short form; formatting what was
read back changes nothing; a size formatted with `round_up` is never below the number.
"""

from __future__ import annotations

import operator
import re
from datetime import timedelta
from fractions import Fraction

from penstock.errors import BadOption

_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE_NAMES = {
    **{name.lower(): factor for name, factor in _SIZES.items()},
    **{f"{name[0].lower()}ib": factor for name, factor in _SIZES.items() if name != "B"},
    **{name[0].lower(): factor for name, factor in _SIZES.items()},
    "byte": 1,
    "bytes": 1,
}

_US, _MS, _S = 1, 1_000, 1_000_000
_MIN, _H, _D = 60 * _S, 3600 * _S, 86400 * _S
_DURATION_NAMES = {
    name: factor
    for factor, names in (
        (_US, "us µs μs microsecond microseconds"),  # the micro sign and the Greek letter
        (_MS, "ms msec millisecond milliseconds"),
        (_S, "s sec secs second seconds"),
        (_MIN, "m min mins minute minutes"),
        (_H, "h hr hrs hour hours"),
        (_D, "d day days"),
        (7 * _D, "w week weeks"),
    )
    for name in names.split()
}

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zµμ]+)\s*", re.IGNORECASE | re.ASCII)
_LARGEST = (1 << 63) - 1  # what Arrow and Spark hold


def parse_size(size: str | int, *, option: str = "memory") -> int:
    """The number of bytes that `size` says, rounded down to a whole one.

    KB, MB, GB and TB are powers of 1024, just as KiB, MiB, GiB and TiB: a budget is about memory, which comes in those.
    An int is a number of bytes; a text needs a unit. `option` is the name to blame in the error.

    >>> parse_size("64MB"), parse_size("1.5 GB"), parse_size("256 kib"), parse_size(4096)
    (67108864, 1610612736, 262144, 4096)
    """
    if isinstance(size, bool) or not isinstance(size, (str, int)):
        raise _bad_size(size, option, f"It is a {type(size).__name__}.")
    if isinstance(size, int):
        if size < 0:
            raise _bad_size(size, option, "A size cannot be negative.")
        return _within(size, size, option)
    found = _QUANTITY.fullmatch(size)
    if found is None:
        bare = re.fullmatch(r"\s*[\d.]+\s*", size)
        raise _bad_size(size, option, "The unit is missing." if bare else "")
    factor = _SIZE_NAMES.get(found[2].lower())
    if factor is None:
        raise _bad_size(size, option, f"{found[2]!r} is not a unit of size.")
    return _within(int(Fraction(found[1]) * factor), size, option)


def parse_duration(duration: str | timedelta, *, option: str = "duration") -> int:
    """The number of microseconds that `duration` says, rounded down to a whole one.

    Parts may follow one another ("1 h 30 min"). A bare number is refused: nothing says of what.

    >>> parse_duration("10 minutes"), parse_duration("500 ms"), parse_duration("1.5h"), parse_duration("1 min 30 s")
    (600000000, 500000, 5400000000, 90000000)
    """
    if isinstance(duration, timedelta):
        if duration < timedelta(0):
            raise _bad_duration(duration, option, "A duration cannot be negative.")
        return _not_too_long(duration // timedelta(microseconds=1), duration, option)
    if not isinstance(duration, str):
        raise _bad_duration(duration, option, "The unit is missing.")
    total, position = Fraction(0), 0
    while position < len(duration) or position == 0:
        found = _QUANTITY.match(duration, position)
        if found is None:
            bare = re.fullmatch(r"\s*[\d.]+\s*", duration)
            raise _bad_duration(duration, option, "The unit is missing." if bare else "")
        factor = _DURATION_NAMES.get(found[2].lower())
        if factor is None:
            raise _bad_duration(duration, option, f"{found[2]!r} is not a unit of time with a fixed length.")
        total += Fraction(found[1]) * factor
        position = found.end()
    return _not_too_long(int(total), duration, option)


def parse_count(count: int, *, option: str, least: int = 1, most: int | None = None) -> int:
    """A whole number in a range; one of NumPy's is as good, a text or a truth value is none.

    >>> parse_count(3, option="slots", most=64)
    3
    """
    try:
        whole = None if isinstance(count, bool) else operator.index(count)
    except TypeError:
        whole = None
    if whole is None:
        raise BadOption(f"{option}={count!r} is not a whole number.", do=f"Give an int: {option}={max(least, 1)}.")
    if whole < least or (most is not None and whole > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        raise BadOption(f"{option}={whole} is not {allowed}.")
    return whole


def format_size(size: int, *, round_up: bool = False) -> str:
    """A short text for a number of bytes, with at most one decimal.

    `round_up` is for "give at least …": `parse_size` of the text is then never below `size`.

    >>> format_size(67108864), format_size(1500), format_size(1025), format_size(1025, round_up=True)
    ('64 MB', '1.5 KB', '1 KB', '1.1 KB')
    """
    for name, factor in _SIZES.items():
        tenths = -(-10 * size // factor) if round_up else (20 * size + factor) // (2 * factor)
        if tenths < 10240 or name == "TB":
            break
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth} {name}" if tenth else f"{whole} {name}"


def format_duration(duration: int) -> str:
    """A short text for a number of microseconds: three digits, or the two largest units from a minute on.

    >>> format_duration(600_000_000), format_duration(1_234_567), format_duration(5_400_000_000), format_duration(750)
    ('10 min', '1.23 s', '1 h 30 min', '750 us')
    """
    if duration < _MIN:
        digits = max(0, len(str(duration)) - 3)
        duration = (2 * duration + 10**digits) // (2 * 10**digits) * 10**digits
        if duration < _MIN:
            name, factor = next((n, f) for n, f in (("s", _S), ("ms", _MS), ("us", _US)) if duration >= f or f == _US)
            return f"{_decimal(Fraction(duration, factor))} {name}"
    large, small = (_MIN, _S) if duration < _H - _S // 2 else (_H, _MIN) if duration < _D - _MIN // 2 else (_D, _H)
    count, rest = divmod((2 * duration + small) // (2 * small), large // small)
    names = {_S: "s", _MIN: "min", _H: "h", _D: "d"}
    return f"{count} {names[large]} {rest} {names[small]}" if rest else f"{count} {names[large]}"


def exact_duration(duration: int) -> str:
    """As `format_duration`, with all microseconds where that has been rounded: no two durations have the same text.

    >>> exact_duration(5_400_000_000), exact_duration(5_410_000_000)
    ('1 h 30 min', '1 h 30 min (5410000000 us)')
    """
    said = format_duration(duration)
    return said if parse_duration(said) == duration else f"{said} ({duration} us)"


def _decimal(value: Fraction) -> str:
    """A fraction of thousandths, without trailing zeros."""
    whole, thousandths = divmod(int(value * 1000), 1000)
    return f"{whole}.{thousandths:03}".rstrip("0").rstrip(".")


def _within(size: int, said: object, option: str) -> int:
    if size > _LARGEST:
        raise _bad_size(said, option, "It is more than 64 bits can count.")
    return size


def _not_too_long(microseconds: int, said: object, option: str) -> int:
    if microseconds > _LARGEST:
        raise _bad_duration(said, option, "It is too long: 64 bits of microseconds end after 292,000 years.")
    return microseconds


def _bad_size(said: object, option: str, why: str) -> BadOption:
    return BadOption(
        f"{option}={said!r} is not a size.",
        why=why,
        do=f'Write a number and one of B, KB, MB, GB, TB (powers of 1024): {option}="64MB" or {option}="1.5 GB"; '
        "or an int, in bytes.",
    )


def _bad_duration(said: object, option: str, why: str) -> BadOption:
    return BadOption(
        f"{option}={said!r} is not a duration.",
        why=why,
        do="Write numbers with units among us, ms, seconds, minutes, hours, days, weeks: "
        f'{option}="10 minutes", {option}="500 ms" or {option}="1 h 30 min".',
    )
