"""The harness without Spark: who has a turn when, what the numbers say, and what is kept."""

import io
import json
from contextlib import contextmanager

import pytest
from rich.console import Console

from benchmarks import machine, report
from benchmarks.harness import Benchmark, Contestant, Limit, Measured, Ratio, Sample, Share, Summary, Told, chosen, run


def silent(text):
    pass


def fixed(name, *seconds, log=None, rows=1000, missing=""):
    """A contestant whose micro-batches take the given times in every turn."""

    def turn(at):
        if log is not None:
            log.append((at.round, name))
        return [Sample(rows, each) for each in seconds]

    return Contestant(name, turn, missing)


def benchmark(*contestants, **settings):
    return Benchmark("made/up", "nothing is measured", lambda: contestants, **settings)


def test_median_and_spread():
    found = Summary.of([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.median, found.low, found.high, found.count) == (3.0, 1.0, 5.0, 5)
    assert (found.first_quartile, found.third_quartile) == (2.0, 4.0)


def test_a_single_measurement_has_no_spread():
    assert Summary.of([2.0]) == Summary(2.0, 2.0, 2.0, 2.0, 2.0, 1)


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError, match="no measurement"):
        Summary.of([])


def test_contestants_take_turns_and_the_first_round_does_not_count():
    log = []
    outcome = run(benchmark(fixed("A", 1.0, log=log), fixed("B", 2.0, log=log)), rounds=2, say=silent)
    assert log == [(0, "A"), (0, "B"), (1, "A"), (1, "B"), (2, "A"), (2, "B")]
    assert [len(measured.turns) for measured in outcome.measured.values()] == [2, 2]


def test_a_ratio_is_of_rows_a_second():
    log = benchmark(fixed("fast", 0.5, rows=1000), fixed("slow", 2.0, rows=2000), ratios=(Ratio("fast", "slow", 1.5),))
    [verdict] = run(log, rounds=1, say=silent).verdicts()
    assert verdict.value == pytest.approx(2.0)
    assert verdict.met is True


def test_the_spread_of_a_ratio_is_round_by_round():
    # A neighbour makes everything twice as slow in the second round: the ratio does not move.
    outcome = run(benchmark(ratios=(Ratio("fast", "slow", 5),)), rounds=0, say=silent)
    outcome.measured |= {
        "fast": Measured("fast", [[Sample(100, 1.0)], [Sample(100, 2.0)]]),
        "slow": Measured("slow", [[Sample(100, 4.0)], [Sample(100, 8.0)]]),
    }
    [verdict] = outcome.verdicts()
    assert (verdict.low, verdict.high) == (4.0, 4.0)
    assert verdict.met is False


def test_limits_on_rate_and_on_time():
    limits = (Limit("A", rate=900), Limit("A", rate=1100), Limit("A", seconds=1.0), Limit("A", seconds=0.9))
    outcome = run(benchmark(fixed("A", 1.0), limits=limits), rounds=1, say=silent)
    assert [verdict.met for verdict in outcome.verdicts()] == [True, False, True, False]


def test_a_share_is_of_what_all_samples_count():
    counts = {1: (1, 2), 2: (8, 8)}
    turn = lambda at: [Sample(1, 1.0, details=dict(zip(("good", "all"), counts.get(at.round, (0, 0)), strict=True)))]  # noqa: E731
    shares = (Share("a", "good", "all", goal=0.95), Share("b", "good", "all"))
    [verdict] = run(benchmark(Contestant("a", turn), shares=shares), rounds=2, say=silent).verdicts()
    assert (verdict.value, verdict.low, verdict.high, verdict.met) == (90.0, 50.0, 100.0, False)


def test_what_a_contestant_tells_is_said_as_it_is():
    turn = lambda at: [Sample(1, 1.0), Sample(1, 1.0, details={"wait": 3.0 * at.round})]  # noqa: E731
    told = (Told("a", "wait", "half of them within", "ms"), Told("b", "wait", "…", "ms"))
    [verdict] = run(benchmark(Contestant("a", turn), told=told), rounds=3, say=silent).verdicts()
    assert (verdict.text, verdict.value, verdict.low, verdict.high) == ("a, half of them within", 6.0, 3.0, 9.0)
    assert verdict.met is None


def test_claims_about_those_who_did_not_run_are_left_out():
    contestants = fixed("A", 1.0), fixed("B", 1.0, missing="not installed")
    outcome = run(
        benchmark(*contestants, ratios=(Ratio("A", "B", 1),), limits=(Limit("B", rate=1),)), rounds=1, say=silent
    )
    assert outcome.verdicts() == []
    assert outcome.missing == {"B": "not installed"}


def test_contestants_chosen_by_word():
    everybody = [fixed("Spark, plain", 1.0), fixed("Penstock, plain", 1.0), fixed("Penstock, prepared", 1.0)]
    assert chosen(everybody, []) == everybody
    assert [one.name for one in chosen(everybody, ["penstock"])] == ["Penstock, plain", "Penstock, prepared"]


def test_setup_surrounds_all_turns():
    log = []

    @contextmanager
    def setup(say):
        log.append("in")
        yield
        log.append("out")

    run(benchmark(fixed("A", 1.0, log=log), setup=setup), rounds=1, say=silent)
    assert log == ["in", (0, "A"), (1, "A"), "out"]


def test_every_turn_is_announced():
    said = []
    run(benchmark(fixed("A", 1.0), fixed("B", 1.0)), rounds=1, say=said.append)
    assert said == [f"made/up · {phase} · {name}" for phase in ("warm-up and check", "round 1 of 1") for name in "AB"]


def test_one_more_turn_inside_a_context():
    log = []

    @contextmanager
    def around():
        log.append("in")
        yield
        log.append("out")

    outcome = run(
        benchmark(fixed("A", 1.0, log=log), fixed("B", 1.0)),
        rounds=1,
        say=silent,
        last=lambda one: around() if one.name == "A" else None,
    )
    assert log == [(0, "A"), (1, "A"), "in", (2, "A"), "out"]
    assert len(outcome.measured["A"].turns) == 1


def test_processor_time_is_shown_where_it_is_known():
    measured = Measured("A", [[Sample(1, 1.0, busy=3.0), Sample(1, 1.0, busy=1.0), Sample(1, 1.0)]])
    assert measured.busy is not None
    assert measured.busy.median == 2.0
    assert Measured("B", [[Sample(1, 1.0)]]).busy is None


def test_ratios_are_printed_last_with_their_goals():
    outcome = run(
        benchmark(
            fixed("A", 0.1),
            fixed("B", 1.0),
            ratios=(Ratio("A", "B", 20), Ratio("A", "B", 5), Ratio("A", "B")),
            limits=(Limit("A", rate=100),),
        ),
        rounds=1,
        say=silent,
    )
    text = io.StringIO()
    console = Console(file=text, width=160)
    report.show(console, outcome)
    report.show_verdicts(console, [outcome])
    lines = [line.strip() for line in text.getvalue().splitlines() if line.strip()]
    assert "≥ 100 rows/s" in lines[-4]
    assert "≥ 20 ×" in lines[-3]
    assert lines[-3].endswith("not met")
    assert "≥ 5 ×" in lines[-2]
    assert lines[-2].endswith(" met")
    assert "goal" not in lines[-1]
    assert "A : B" in lines[-1]


def test_kept_as_json_with_the_machine(tmp_path):
    outcome = run(benchmark(fixed("A", 1.0, 3.0), fixed("B", 4.0), ratios=(Ratio("A", "B", 3),)), rounds=2, say=silent)
    facts = machine.facts()
    first = report.save(tmp_path / "results", [outcome], facts, {"reps": 2})
    second = report.save(tmp_path / "results", [outcome], facts, {"reps": 2})
    assert first != second
    said = json.loads(first.read_text())
    assert {"cores", "memory_bytes", "load_average", "packages", "commit", "java"} <= said["machine"].keys()
    assert said["settings"] == {"reps": 2}
    [kept] = said["benchmarks"]
    assert kept["contestants"][0]["seconds"]["median"] == 2.0
    assert [len(turn) for turn in kept["contestants"][0]["rounds"]] == [2, 2]
    assert kept["claims"][0]["met"] is False


@pytest.mark.parametrize(
    ("rate", "text"), [(1_234_567, "1.23 M"), (999_000, "999 k"), (28_000, "28 k"), (806.4, "806"), (7.25, "7.25")]
)
def test_rates_have_three_digits(rate, text):
    assert report.rows_per_second(rate) == text
