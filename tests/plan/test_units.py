"""Sizes and durations: what people write, what is refused, and what comes back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadOption
from penstock.plan.units import format_duration, format_size, parse_duration, parse_size

SECOND = 1_000_000
sizes = st.one_of(st.integers(0, 1 << 14), st.integers(0, 1 << 50))
durations = st.one_of(st.integers(0, 100 * SECOND), st.integers(0, 1000 * 86400 * SECOND))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("1 B", 1),
        ("10 bytes", 10),
        ("64MB", 64 << 20),
        ("64 mb", 64 << 20),
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("1.5 GB", 3 << 29),
        (".5kb", 512),
        ("  2 TB ", 2 << 40),
        ("1.1KB", 1126),
        (4096, 4096),
        (0, 0),
    ],
)
def test_size_as_written(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "wrong",
    ["", "lots", "64", "64 QB", "-1MB", "1,5 GB", "1e3 MB", "MB", "1B1B", "٣B", -1, True, 1.5, None, "9" * 30 + "TB"],
)
def test_wrong_size_is_refused_with_the_allowed_forms(wrong):
    with pytest.raises(BadOption) as caught:
        parse_size(wrong, option="page")
    message = str(caught.value)
    assert repr(wrong) in message
    assert "B, KB, MB, GB, TB" in message
    assert 'page="64MB"' in message


def test_missing_unit_is_named():
    with pytest.raises(BadOption, match="unit is missing"):
        parse_size("64")
    with pytest.raises(BadOption, match="unit is missing"):
        parse_duration("10")


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 minutes", 600 * SECOND),
        ("500 ms", 500_000),
        ("1.5 h", 5400 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("7 us", 7),
        ("7 µs", 7),
        ("7 μs", 7),
        ("1 Second", SECOND),
        ("1h30min", 5400 * SECOND),
        ("1 d 2 h 3 min 4.5 s", 93784 * SECOND + SECOND // 2),
        ("2 weeks", 14 * 86400 * SECOND),
        ("0 s", 0),
        (timedelta(minutes=3, microseconds=1), 180 * SECOND + 1),
    ],
)
def test_duration_as_written(text, microseconds):
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "soon",
        "10",
        "3 months",
        "-1 s",
        "1 h and 2 min",
        "1:30",
        10,
        None,
        timedelta(-1),
        timedelta.max,
        "9" * 30 + "d",
    ],
)
def test_wrong_duration_is_refused_with_the_allowed_forms(wrong):
    with pytest.raises(BadOption) as caught:
        parse_duration(wrong, option="within")
    message = str(caught.value)
    assert repr(wrong) in message
    assert "us, ms, seconds, minutes, hours, days, weeks" in message
    assert 'within="10 minutes"' in message


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 us"),
        (999, "999 us"),
        (1_000, "1 ms"),
        (12_345, "12.3 ms"),
        (999_600, "1 s"),
        (59_960_000, "1 min"),
        (60 * SECOND, "1 min"),
        (90 * SECOND, "1 min 30 s"),
        (3599_900_000, "1 h"),
        (86400 * SECOND - 1, "1 d"),
        (30 * 3600 * SECOND, "1 d 6 h"),
    ],
)
def test_duration_in_short(microseconds, text):
    assert format_duration(microseconds) == text


@given(sizes)
def test_format_size_can_be_read_back(size):
    text = format_size(size)
    assert abs(parse_size(text) - size) <= 0.05 * size
    assert format_size(parse_size(text)) == text


@given(sizes)
def test_rounded_up_size_is_never_too_small(size):
    again = parse_size(format_size(size, round_up=True))
    assert size <= again
    assert again <= 1.1 * size + 1


@given(st.integers(0, 1023), st.sampled_from(["B", "KB", "MB", "GB", "TB"]))
def test_whole_sizes_come_back_exactly(count, unit):
    size = parse_size(f"{count} {unit}")
    assert parse_size(format_size(size)) == size
    assert parse_size(format_size(size, round_up=True)) == size


@given(durations)
def test_format_duration_can_be_read_back(duration):
    text = format_duration(duration)
    assert abs(parse_duration(text) - duration) <= 0.025 * duration
    assert format_duration(parse_duration(text)) == text


@given(st.integers(1, 59), st.sampled_from(["us", "ms", "s", "min"]))
def test_whole_durations_come_back_exactly(count, unit):
    assert format_duration(parse_duration(f"{count} {unit}")) == f"{count} {unit}"
