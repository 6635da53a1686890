"""The tables, targets and options of the PostgreSQL benchmark."""

from __future__ import annotations

import pytest

pytest.importorskip("psycopg", reason="no PostgreSQL client: pip install 'penstock[postgres]'")
pytest.importorskip("procrastinate", reason="procrastinate is not installed: pip install procrastinate")

from benches.postgres.__main__ import arguments
from benches.postgres.cases import CASES, QUICK, WHOLE
from benches.postgres.plot import PANELS, rows_of
from benches.postgres.progress import told
from benches.postgres.report import markdown
from benches.postgres.systems import PENSTOCK, PLAIN, PLAIN_HISTORY, PROCRASTINATE, SESSION
from benches.postgres.targets import TARGETS, Target
from benches.summary import Repeat, Summary

PHASES = {"put_per_s": 100.0, "reserve_per_s": 100.0, "finalize_per_s": 100.0}


def summary_of(*repeats: tuple[str, str, dict[str, float]], foreign_share: float = 0.0) -> Summary:
    summary = Summary()
    for system, case, metrics in repeats:
        summary.add(Repeat(system, case, 0, metrics, foreign_share))
    return summary


def target(of: str, case: str, metric: str, to: str | None) -> Target:
    [found] = [t for t in TARGETS if (t.of, t.case, t.metric, t.to) == (of, case, metric, to)]
    return found


# --- targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "met"), [(199.0, False), (200.0, True)])
def test_twice_procrastinate_is_enough(ours: float, met: bool) -> None:
    summary = summary_of((PENSTOCK, "one", {"put_per_s": ours}), (PROCRASTINATE, "one", {"put_per_s": 100.0}))
    assert target(PENSTOCK, "one", "put_per_s", PROCRASTINATE).met(summary) is met


@pytest.mark.parametrize(("ours", "met"), [(5.0, True), (5.1, False)])
def test_waking_must_not_take_longer_than_procrastinate_does(ours: float, met: bool) -> None:
    slow, fast = (PROCRASTINATE, "wake-up", {"wakeup_p50_ms": 5.0}), (SESSION, "wake-up", {"wakeup_p50_ms": ours})
    assert target(SESSION, "wake-up", "wakeup_p50_ms", PROCRASTINATE).met(summary_of(slow, fast)) is met


def test_batches_are_divided_by_the_same_system_one_by_one() -> None:
    summary = summary_of((PENSTOCK, "one", PHASES), (PENSTOCK, "batch-100", {"put_per_s": 1_500.0}))
    assert target(PENSTOCK, "batch-100", "put_per_s", PENSTOCK).measured(summary) == 15.0


@pytest.mark.parametrize(("share", "met"), [(0.94, False), (0.95, True)])
def test_an_offered_rate_is_held_when_nearly_all_of_it_is(share: float, met: bool) -> None:
    summary = summary_of((PENSTOCK, "pinned", {"late_share": share}))
    assert target(PENSTOCK, "pinned", "late_share", None).met(summary) is met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert target(PENSTOCK, "one", "put_per_s", PROCRASTINATE).met(summary_of((PENSTOCK, "one", PHASES))) is None


def test_every_target_is_of_a_case_and_a_figure_that_exist() -> None:
    names = {case.name for case in CASES}
    assert {t.case for t in TARGETS} <= names
    assert {t.to_case for t in TARGETS if t.to_case} <= names
    assert {t.to for t in TARGETS} == {PROCRASTINATE, PLAIN, PLAIN_HISTORY, PENSTOCK, SESSION, None}


# --- tables ---------------------------------------------------------------------------------------


def test_a_row_says_by_how_much_penstock_is_better_whatever_better_means() -> None:
    summary = summary_of(
        (PENSTOCK, "one", PHASES),
        (PLAIN, "one", {**PHASES, "put_per_s": 50.0}),
        (PENSTOCK, "wake-up", {"wakeup_p50_ms": 2.0}),
        (PLAIN, "wake-up", {"wakeup_p50_ms": 5.0}),
    )
    text = markdown(summary, WHOLE, "a machine")
    assert "| one by one (`one`) | plain table | 50 | **2.00** | 100 | **1.00** |" in text
    assert "| plain table | 5.00 | **2.50** |" in text
    assert "1,000,000 rows" in text


def test_the_seeds_own_numbers_stand_below_the_calls_one_by_one() -> None:
    text = markdown(summary_of((PENSTOCK, "one", PHASES)), WHOLE, "a machine")
    [line] = [line for line in text.splitlines() if "the seed" in line]
    assert "| 2,000 |" in line
    assert "| 0.69 |" in line
    assert "the seed" not in markdown(summary_of((PENSTOCK, "batch-100", PHASES)), WHOLE, "a machine")


def test_disturbed_figures_are_marked_in_tables_and_targets() -> None:
    repeats = ((PENSTOCK, "one", PHASES), (PROCRASTINATE, "one", PHASES))
    text = markdown(summary_of(*repeats, foreign_share=0.5), WHOLE, "a machine")
    assert "penstock ~ |" in text
    assert "| 1.00 ~ | **no** |" in text
    assert "~" not in markdown(summary_of(*repeats), WHOLE, "a machine")


def test_a_line_tells_what_a_repeat_came_to() -> None:
    assert told(Repeat(PENSTOCK, "one", 0, {"put_per_s": 1234.0})) == "put 1,234/s"
    assert told(Repeat(PENSTOCK, "one", 0, {}, error="no disk")) == "FAILED: no disk"
    assert "DISTURBED: others used 30%" in told(Repeat(PENSTOCK, "wake-up", 0, {"wakeup_p50_ms": 2.0}, 0.3))


def test_a_plot_has_only_what_was_measured() -> None:
    summary = summary_of((PENSTOCK, "flow-1", {"done_per_s": 10.0}), (PLAIN, "flow-1", {"done_per_s": 5.0}))
    drawn = [(panel.title, rows) for panel in PANELS if (rows := rows_of(panel, summary))]
    assert [rows for _, rows in drawn] == [[("one by one", "", {PENSTOCK: 10.0, PLAIN: 5.0})]]


# --- options --------------------------------------------------------------------------------------


def test_a_whole_run_and_a_part_of_one_have_reports_of_their_own() -> None:
    assert arguments([]).name == "postgres"
    for partial in (["--quick"], ["--rows", "10"], ["--only", "one"], ["--systems", "plain table"]):
        assert arguments(partial).name == "postgres-partial"


def test_single_numbers_of_a_plan_can_be_changed() -> None:
    plan = arguments(["--quick", "--rows", "7", "--pinned-s", "3"]).plan
    assert (plan.rows, plan.pinned_s, plan.seconds) == (7, 3.0, QUICK.seconds)


def test_an_unknown_case_names_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--only", "one,two"])
    assert "there is no two (there are: one," in capsys.readouterr().err
