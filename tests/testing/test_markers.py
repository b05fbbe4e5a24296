"""Scripts of input and crashes."""

from itertools import dropwhile

import pyarrow as pa
import pytest

from penstock.errors import KernelFault
from penstock.kernels.contract import RESULTS, Emission, Portion
from penstock.kernels.passthrough import PassThrough
from penstock.testing import CRASH, CRASH_MIDWAY, TICK, Host, as_sent, bag, play, shuffled

ROWS = pa.table({"n": [1, 2, 3]})
MORE = pa.table({"n": [4, 5, 6, 7]})


def host_of(keep=2):
    return Host(lambda: PassThrough(ROWS.schema, keep))


def test_a_script_without_crashes_is_a_run():
    host = host_of()
    assert play(host, [ROWS, TICK, MORE])[RESULTS]["n"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    assert host.restores == 0


def test_kill_and_resume():
    host = host_of()
    got = play(host, [CRASH, ROWS, CRASH, CRASH, CRASH_MIDWAY(1, as_sent), MORE, CRASH, TICK, ROWS])
    assert got[RESULTS]["n"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    assert host.kernel.rows == 10
    assert host.rows == {RESULTS: 10}
    assert host.restores == 3


@pytest.mark.parametrize("emissions", [0, 1, 2, 99])
def test_what_a_lost_step_emitted_does_not_count(emissions):
    host = host_of()
    got = play(host, [ROWS, CRASH_MIDWAY(emissions), CRASH_MIDWAY(emissions), [MORE, ROWS]])
    assert bag(got[RESULTS]) == bag(pa.concat_tables([ROWS, MORE, ROWS]))
    assert host.kernel.rows == 10


def test_the_first_step_can_be_lost():
    assert play(host_of(), [CRASH_MIDWAY(1), ROWS])[RESULTS].num_rows == 3


class Owing(PassThrough):
    """Owes one row for each step, emitted by a tick."""

    owed = 0

    def step(self, batch, now):
        yield from super().step(batch, now)
        self.owed = 1

    def restore(self, head, chunks):
        super().restore(head, chunks)
        self.owed = 1

    def pending(self):
        return self.owed > 0

    def tick(self, now, watermark=None):
        yield Emission(RESULTS, ROWS.slice(0, 1).to_batches()[0])
        self.owed = 0


def test_a_tick_can_be_lost_and_runs_again():
    host = Host(lambda: Owing(ROWS.schema))
    got = play(host, [ROWS, CRASH_MIDWAY(1), TICK, TICK])
    assert got[RESULTS]["n"].to_pylist() == [1, 2, 3, 1]


class LastFirst(PassThrough):
    """Emits the last portion alone: another one when the rows come in another order."""

    def step(self, batch, now):
        *_, last = super().step(batch, now)
        yield last


def test_a_step_that_emits_other_rows_when_it_is_run_again_is_at_fault():
    host = Host(lambda: LastFirst(ROWS.schema))
    with pytest.raises(KernelFault, match="no longer emits what it had emitted"):
        play(host, [CRASH_MIDWAY(1, lambda portions: portions[::-1]), [ROWS, MORE]])


class FromOneOn(PassThrough):
    """Emits portions from the one with row 1 on: more of them when that one comes first."""

    def step(self, batch, now):
        yield from dropwhile(lambda emission: emission.rows["n"][0].as_py() != 1, super().step(batch, now))


def test_a_step_that_emits_more_when_it_is_run_again_is_at_fault():
    """The sink has kept the output of the first run: what is more in the second is lost."""
    script = [CRASH_MIDWAY(9, lambda portions: portions[::-1]), [MORE, ROWS]]
    with pytest.raises(KernelFault, match="emits more than it had emitted"):
        play(Host(lambda: FromOneOn(ROWS.schema)), script)
    cut_short = [CRASH_MIDWAY(1, lambda portions: portions[::-1]), [MORE, ROWS]]
    play(Host(lambda: FromOneOn(ROWS.schema)), cut_short)


def test_shuffled_is_the_same_rows_otherwise():
    portions = [Portion(0, ROWS.to_batches()[0]), Portion(1, MORE.to_batches()[0]), Portion(0, MORE.to_batches()[0])]
    again = shuffled(3)(portions)
    for side in (0, 1):
        was, now = (pa.Table.from_batches([p.rows for p in some if p.side == side]) for some in (portions, again))
        assert bag(was) == bag(now)
    assert again == shuffled(3)(portions)
    assert again != portions
    assert shuffled(3)([]) == []


def test_a_script_must_not_end_in_the_middle():
    with pytest.raises(ValueError, match="put it before"):
        play(host_of(), [ROWS, CRASH_MIDWAY(1)])
