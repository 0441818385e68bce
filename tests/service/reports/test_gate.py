"""Requirements on results: what they name, and which end of which interval decides."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import Results
from assay.service.reports.gate import GateVerdict, WrongRequirement, judged, read_requirement
from tests.support.result_rows import row


def metric(low: float | None, value: float | None, high: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "value": value,
        "n": 1000,
        "ci_low": low,
        "ci_high": high,
        "ci_method": "wilson",
        "higher_is_better": True,
        "unit": "proportion",
    } | changes


ROWS = [
    row("clean", {"top1": metric(0.91, 0.93, 0.95)}),
    row("clean", {"top1": metric(0.71, 0.75, 0.8)}, data={"name": "other", "params": {"folder": "my set"}}),
    row("pgd", {"top1": metric(0.45, 0.5, 0.55)}, params={"epsilon": "8/255", "steps": 20}),
    row("pgd", {"top1": metric(0.35, 0.4, 0.45)}, params={"epsilon": "8/255", "steps": 1000}),
    row("pgd", {"top1": metric(0.75, 0.8, 0.85)}, params={"epsilon": 2 / 255, "steps": 20, "mask": None}),
    row(
        "corruptions",
        {"mce": metric(0.7, 0.8, 0.9, unit="ratio", higher_is_better=False)},
        breakdown=[
            {"corruption": "fog", "severity": None, "metrics": {"top1": metric(0.6, 0.65, 0.7)}},
            {"corruption": "fog", "severity": 3, "metrics": {"top1": metric(0.5, 0.55, 0.6)}},
        ],
    ),
    row(
        "perplexity",
        {"perplexity": metric(20, 21, 22, unit="number", higher_is_better=False)},
        warnings=[{"code": "subset", "message": "1000 of 10000"}],
    ),
    row("few", {"top1": metric(None, 0.5, None, ci_method="too_few"), "top5": metric(None, None, None)}),
    row(
        "leaky",
        {"top1": metric(0.91, 0.93, 0.95)},
        warnings=[{"code": "leaks_future", "message": "it sees what it is to predict"}],
    ),
]


def judge(
    text: str, rows: list[dict[str, Any]] = ROWS, *, complete: bool = True, warnings: Any = ()
) -> GateVerdict:
    given = {"job": "x", "complete": complete, "evaluations": rows, "provenance": None}
    given["warnings"] = list(warnings)
    return judged(read_requirement(text), Results.model_validate(given))


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        # The lower end is 0.45, the value 0.5, the upper end 0.55.
        ("pgd 8/255 steps=20 top1 >= 0.45", True),
        ("pgd 8/255 steps=20 top1 >= 45 %", True),
        ("pgd 8/255 steps=20 top1>=45%", True),
        ("pgd 8/255 steps=20 top1 >= 9/20", True),
        ("pgd 8/255 steps=20 top1 > 0.45", False),
        ("pgd 8/255 steps=20 top1 >= 0.46", False),
        ("pgd 8/255 steps=20 top1 <= 0.55", True),
        ("pgd 8/255 steps=20 top1 < 55 %", False),
        ("pgd 8/255 steps=20 top1 <= 0.54", False),
        ("pgd epsilon=0.0314 steps=1000 top1 >= 0.35", True),
        ("pgd epsilon = 2/255 top1 >= 0.75", True),
        ("pgd 2/255 mask=none top1 >= 0.75", True),
        ("clean data=digits top1 >= .9", True),
        ("clean 'data=other(folder=my set)' top1 >= 0.71", True),
        ("corruptions mce <= 90 %", True),
        ("corruptions mce <= 0.89", False),
        ("corruptions/fog top1 >= 0.6", True),
        ("corruptions/fog/3 top1 >= 0.6", False),
        ("perplexity perplexity <= 22", True),
        ("perplexity perplexity < 2.2e1", False),
    ],
)
def test_the_end_of_the_interval_decides(text: str, passed: bool) -> None:
    verdict = judge(text)
    assert verdict.passed is passed
    assert bool(verdict.reason) is not passed


def test_a_verdict_has_the_numbers() -> None:
    verdict = judge("pgd 8/255 steps=20 top1 >= 0.4501")
    assert (verdict.value, verdict.ci_low, verdict.ci_high, verdict.n) == (0.5, 0.45, 0.55, 1000)
    # With as many digits as tell it from the bound.
    assert verdict.reason == "the interval's lower end is 45 %"
    assert judge("perplexity perplexity <= 30").warnings == ("subset",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("few top1 >= 0.1", "it has no interval: too few examples"),
        ("few top5 >= 0", "it has no value"),
        ("leaky top1 >= 0.9", "warning leaks_future: it sees what it is to predict"),
    ],
)
def test_what_cannot_be_judged_does_not_pass(text: str, reason: str) -> None:
    verdict = judge(text)
    assert not verdict.passed
    assert verdict.reason == reason


@pytest.mark.parametrize(
    "text", ["clean data=digits top1 >= 0.5", "pgd 2/255 top1 >= 0.5", "corruptions mce <= 1"]
)
def test_an_invalid_warning_of_the_whole_results_fails_every_row(text: str) -> None:
    assert judge(text).passed
    broken = {"code": "certified_and_broken", "message": "3 examples are both"}
    verdict = judge(text, warnings=[broken])
    assert (verdict.passed, verdict.reason) == (False, "warning certified_and_broken: 3 examples are both")
    for severity in ("caution", "note"):
        assert judge(text, warnings=[broken | {"severity": severity}]).passed


def test_incomplete_results_do_not_pass() -> None:
    verdict = judge("clean data=digits top1 >= 0.5", complete=False)
    assert (verdict.passed, verdict.reason) == (False, "the results are not complete")
    verdict = judge("square top1 >= 0.5", complete=False)
    assert not verdict.passed
    assert verdict.reason.startswith("not measured yet: no evaluation 'square'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no comparison"),
        ("pgd top1", "has no comparison"),
        ("pgd top1 == 0.5", "has '=='"),
        ("pgd top1 => 0.5", "has '=>'"),
        ("pgd 0.1 <= top1 <= 0.5", "has '<=' and '<='"),
        ("top1 >= 0.5", "names no evaluation and metric"),
        ("pgd eps top1 >= 0.5", "'eps' is no condition"),
        ("pgd steps= top1 >= 0.5", "names no evaluation and metric"),
        ("pgd 'steps=20 top1 >= 0.5", "No closing quotation"),
        ("pgd top1 >= half", "the bound 'half' is no number"),
        ("pgd top1 >= nan", "the bound 'nan' is no number"),
        ("pgd top1 >= 1e999", "the bound '1e999' is no number"),
        ("pgd top1 >= 45 % %", "is no number"),
        ("pdg top1 >= 0.5", "did you mean 'pgd'?"),
        ("pgd eps=8/255 top1 >= 0.5", "did you mean 'epsilon'?"),
        ("pgd epsilonn=8/255 top1 >= 0.5", "did you mean 'epsilon'?"),
        ("pgd 8/255 steps=20 top2 >= 0.5", "has no metric 'top2'; did you mean 'top1'?"),
        ("pgd 4/255 top1 >= 0.5", "no row of 'pgd' fits; there are: 'pgd epsilon=8/255 steps=20"),
        ("pgd 8/255 steps=999 top1 >= 0.5", "no row of 'pgd' fits"),
        (
            "pgd 8/255 top1 >= 0.5",
            "tell them apart: 'pgd epsilon=8/255 steps=20 top1'; 'pgd epsilon=8/255 steps=1000 top1'",
        ),
        ("clean top1 >= 0.5", "'clean data=digits top1'; \"clean 'data=other(folder=my set)' top1\""),
        ("corruptions/fogg top1 >= 0.5", "has no part 'fogg'; did you mean 'fog'?"),
        ("pgd 8/255 steps=20 top1 >= 45", "did you mean 45 %?"),
        ("pgd 8/255 steps=20 top1 >= 120 %", "allowed: 0 to 1, or 0 % to 100 %"),
        ("pgd 8/255 steps=20 top1 >= -1", "allowed: 0 to 1"),
        ("corruptions mce <= 90", "did you mean 90 %?"),
        ("perplexity perplexity <= 22 %", "is no proportion, its unit is number"),
    ],
)
def test_wrong_requirements_say_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(WrongRequirement) as raised:
        judge(text)
    assert said in str(raised.value)


def test_the_rows_that_a_message_names_are_each_one_row() -> None:
    with pytest.raises(WrongRequirement) as raised:
        judge("clean top1 >= 0.5")
    quoted = [text.strip("'\"") for text in str(raised.value).partition("apart: ")[2].split("; ")]
    assert [judge(f"{text} >= 0").value for text in quoted] == [0.93, 0.75]


@pytest.mark.parametrize(("epsilon", "value"), [("8/255", 0.5), ("0.0314", 0.4)])
def test_a_radius_that_fits_exactly_comes_before_one_that_is_rounded(epsilon: str, value: float) -> None:
    """A decimal names the fraction that it rounds, but a row of that very decimal first."""
    rounded = row("pgd", {"top1": metric(0.35, 0.4, 0.45)}, params={"epsilon": 0.0314, "steps": 20})
    exact = ROWS[2] | {"params": {"epsilon": 8 / 255, "steps": 20}}
    assert judge(f"pgd {epsilon} top1 >= 0", [exact, rounded]).value == value
    assert judge(f"pgd {epsilon} top1 >= 0", [rounded, exact]).value == value


def test_rows_that_are_alike_cannot_be_named() -> None:
    with pytest.raises(WrongRequirement, match="differ in nothing"):
        judge("clean top1 >= 0.5", [ROWS[0], ROWS[0]])
    again = ROWS[2] | {"params": {"epsilon": 8 / 255, "steps": 20}}
    with pytest.raises(WrongRequirement, match=r"names 2 rows.*differ in nothing"):
        judge("pgd 8/255 steps=20 top1 >= 0.5", [ROWS[2], again])
    with pytest.raises(WrongRequirement) as raised:
        judge("pgd 8/255 top1 >= 0.5", [ROWS[2], again, ROWS[3]])
    apart = str(raised.value).partition("apart: ")[2]
    assert apart == "'pgd epsilon=8/255 steps=20 top1'; 'pgd epsilon=8/255 steps=1000 top1'"
