"""The results of a study as CSV, and as a Markdown table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.contract.results import Unit
from assay.service.contract.row_protocols import protocol_unit
from assay.service.contract.states import RETRYABLE
from assay.service.contract.warning_codes import SEVERITIES, SEVERITY
from assay.service.reports.markdown_text import escape_markdown
from assay.service.reports.numbers import tenths
from assay.service.studies.power import FIRST_SEEDS, amount
from assay.service.studies.result_wire import ArmValue, StudyCell, StudyComparison, StudyPrimary, StudyResults
from assay.service.studies.rows import Extension, StudyRow
from assay.service.studies.wire import StudyUntil

MAX_PLACES = 3  # Evaluations that a line of warnings names.
CHANGED = ("attack", "corrupt", "swap")  # in names of tables of changed examples
LEVEL = 0.05  # Of adjusted p
CSV_COLUMNS = (
    "evaluation", "params", "data", "protocol", "metric", "unit", "arm", "seeds", "n", "mean", "sd",
    "baseline", "compares", "difference", "ci_low", "ci_high", "ci_method", "test", "p_value",
    "adjusted_p_value", "adjust", "resolves", "claim", "margin", "claim_p_value", "holds", "design",
    "registered_at", "fixed",
)  # fmt: skip
TESTS = {"two_way_t": "two-way t", "paired_t": "paired t over seeds", "anytime_t": "anytime-valid t"}
ADJUSTED = {"holm": "Holm", "benjamini_hochberg": "Benjamini-Hochberg"}
PERCENT: frozenset[Unit | None] = frozenset({"proportion", "ratio"})
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")  # Starts of cells that spreadsheets run as formulas


def to_csv(results: StudyResults) -> str:
    """CSV with a row for each metric and arm; the row of the baseline arm has no difference."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    fixing = results.fixing
    design = [None] * 3 if fixing is None else [fixing.design, fixing.registered_at, fixing.fixed]
    for cell in results.cells:
        compared = {one.arm: one for one in cell.comparisons}
        for arm in cell.arms:
            params, data = (json.dumps(part, separators=(",", ":")) for part in (cell.params, cell.data))
            names = (cell.evaluation, params, data, cell.protocol, cell.metric, cell.unit or "", arm.arm)
            seeds = sum(one.value is not None for one in arm.seeds)
            found = _csv_cells(compared.get(arm.arm), results)
            writer.writerow([*map(_inert, names), seeds, arm.n, arm.mean, arm.sd, *found, *design])
    return text.getvalue()


def _csv_cells(found: StudyComparison | None, results: StudyResults) -> list[object]:
    if found is None:
        return [None] * 15
    test, power = found.test, found.power
    cells: list[object] = [_inert(found.baseline), found.compares, found.difference, found.ci_low]
    cells += [found.ci_high, found.ci_method]
    cells += [None] * 4 if test is None else [test.name, test.p_value, test.adjusted_p_value, results.adjust]
    asked = results.primary if found.primary else None
    claim = [None] * 4 if asked is None else [asked.claim, asked.margin, asked.p_value, asked.holds]
    return [*cells, None if power is None else power.resolves, *claim]


def _inert(text: str) -> str:
    """The text, with an apostrophe in front where a spreadsheet would run it."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def header(results: StudyResults) -> list[str]:
    """The titles of `rows`."""
    p = f"p ({', '.join(tests_of(results)) or 'no test'})"
    kind = "95 %" if results.until is None else "95 %, anytime-valid"
    return ["evaluation", "metric", results.baseline, "arm", "mean ± sd", f"difference [{kind}]", p,
            f"p, {ADJUSTED[results.adjust]}"]  # fmt: skip


def tests_of(results: StudyResults) -> list[str]:
    """The names of the tests, in words."""
    found = (one.test.name for cell in results.cells for one in cell.comparisons if one.test is not None)
    return [TESTS[name] for name in dict.fromkeys(found)]


def rows(results: StudyResults) -> Iterator[list[str]]:
    """The tested metrics: a row for each evaluation and arm except the baseline, which has one if alone."""
    several = len(tests_of(results)) > 1
    for cell in results.cells:
        if not cell.tested:
            continue
        values = {arm.arm: _spread(arm, cell.unit) for arm in cell.arms}
        begin = [label(cell), cell.metric, values[results.baseline]]
        for found in cell.comparisons:
            p = "-" if found.test is None else f"{found.test.p_value:.3g}"
            if several and found.test is not None:
                p += f" ({TESTS[found.test.name]})"
            adjusted = "-" if found.test is None else f"{found.test.adjusted_p_value:.3g}"
            adjusted = _of_claim(results.primary) if found.primary and results.primary else adjusted
            yield [*begin, found.arm, values[found.arm], _difference(found, cell.unit), p, adjusted]
        if not cell.comparisons:
            yield [*begin, "-", "-", "-", "-", "-"]


def _of_claim(asked: StudyPrimary) -> str:
    if asked.claim == "difference" or asked.p_value is None:
        return "primary"
    return f"primary; of the claim {asked.p_value:.3g}"


def label(cell: StudyCell) -> str:
    """Name of the evaluation, with its epsilon where it has one."""
    epsilon = cell.params.get("epsilon")
    if epsilon is None:
        return cell.evaluation
    return f"{cell.evaluation} {epsilon}{' sd' if protocol_unit(cell.data, cell.protocol) == 'sd' else ''}"


def headline(results: StudyResults) -> str:
    """What the study found, or which difference more seeds would find; empty without a comparison.

    Without a primary question the surest significant difference, else the largest: under attacks and
    corruptions first, else of what was compared, or found.
    """
    compared = [(one, cell) for cell in results.cells if cell.tested for one in cell.comparisons]
    known = [pair for pair in compared if pair[0].difference is not None]
    if not known:
        return ""
    begin = "" if results.complete else "Not complete, so far: "
    if results.primary is not None:
        late = results.fixing is not None and results.fixing.fixed == "after"
        doubt = "; not fixed before the first run, so its p need not keep its level" if late else ""
        return f"{begin}{_where(results, results.primary)}: {results.primary.text}{doubt}."
    found = [
        (not _robust(known[place][1]), one.test.adjusted_p_value, place)
        for place, (one, _) in enumerate(known)
        if one.test is not None and one.compares == "methods" and one.test.adjusted_p_value < LEVEL
    ]
    if found:
        one, cell = known[min(found)[2]]
        better = ((one.difference or 0.0) > 0) == cell.higher_is_better
        word, size = "better" if better else "worse", _difference(one, cell.unit)
        unit = " points" if cell.unit in PERCENT else ""
        return (
            f"{begin}{one.arm} is {word} than {one.baseline} on {label(cell)}: {cell.metric} {size}{unit}"
            f"; {len(found)} of {len(compared)} differences are significant."
        )
    one, cell = max(known, key=lambda pair: (_robust(pair[1]), abs(pair[0].difference or 0.0)))
    size = f"{_difference(one, cell.unit)}{' points' if cell.unit in PERCENT else ''}"
    on = " on attacked or corrupted examples" if _robust(cell) else ""
    text = f"{begin}Too small to tell: the largest difference{on} is {size} ({one.arm}, {label(cell)})"
    if one.power is None or one.power.with_twice is None:
        return f"{text}."
    more = 2 * one.power.seeds if one.power.seeds > 1 else FIRST_SEEDS
    return f"{text}; {more} seeds would find {amount(one.power.with_twice, cell.unit)}."


def _robust(cell: StudyCell) -> bool:
    """Whether the metric is of attacked or corrupted examples: of a threat, or by its outcomes' table."""
    tables = {one.name: json.dumps(one.table) for one in load().list("evaluation")}.get(cell.evaluation, "")
    return load().changes_examples(cell.evaluation) or any(word in tables for word in CHANGED)


def lines(results: StudyResults, *, warned: bool = True) -> list[str]:
    """What has to be said beside the table: notes, power, tests, missing runs and, if `warned`, warnings."""
    said = [*_fixing(results), *_question(results), *extension(results), *results.notes]
    seeds = f"seeds {', '.join(map(str, results.seeds))}"
    said.append(
        f"{seeds}; mean ± standard deviation over seeds; differences are the arm less {results.baseline}"
    )
    if results.tests:
        said.append(
            f"{results.tests} test{'' if results.tests == 1 else 's'} ({', '.join(tests_of(results))}),"
            f" p adjusted together by {ADJUSTED[results.adjust]}"
        )
    said += _powers(results)
    said += _warnings(results) if warned else []
    said += [f"missing: {one.arm}, seed {one.seed} ({one.state})" for one in results.missing]
    told = results.warnings if warned else []
    return [*said, *(f"{one.severity} {one.code}: {one.message}" for one in told)]


def _fixing(results: StudyResults) -> list[str]:
    """When the design was fixed, where a reader asks: it was registered, changed, or has a question."""
    found = results.fixing
    if found is None or not (found.registered_at or found.remarks or results.primary):
        return []
    return [f"design {found.text}"]


def _question(results: StudyResults) -> list[str]:
    asked = results.primary
    if asked is None:
        return []
    claim = {
        "difference": "differs from",
        "not_worse": f"is not worse by {asked.margin} or more than",
        "equivalent": f"differs by less than {asked.margin} from",
    }[asked.claim]
    return [
        f"primary question: {asked.arm} {claim} {asked.baseline} in {_where(results, asked)}: {asked.text}"
    ]


def _where(results: StudyResults, asked: StudyPrimary) -> str:
    cell = next(cell for cell in results.cells for one in cell.comparisons if one.primary)
    return label(cell) if asked.metric == cell.evaluation else f"{asked.metric} of {label(cell)}"


def until_view(study: StudyRow) -> StudyUntil | None:
    """The extension of a study as users see it."""
    until, extension = study.spec.get("until"), study.extension
    if until is None or extension is None:
        return None
    return StudyUntil(
        **until, state=extension.state, looks=extension.looks, text=_until_text(study, until, extension)
    )


def _until_text(study: StudyRow, until: Mapping[str, Any], extension: Extension) -> str:
    looks = [look.seeds for look in extension.looks]
    said = f"looked at {len(looks)} time{'' if len(looks) == 1 else 's'}"
    if looks:
        said += f" (after {', '.join(map(str, looks))} seeds)"
        last = extension.looks[-1]
        if last.ci_low is not None and last.ci_high is not None:
            said += f", the anytime-valid interval is {last.ci_high - last.ci_low:.3g} wide"
    asked = f"at most {until['width']:g} is asked"
    lost = [run for run in study.runs if run.state in (*RETRYABLE, "deleted")]
    lost.sort(key=lambda run: run.role != "train")
    going = {
        "open": f"{asked}; seeds are added until then, up to {until['max_seeds']}",
        "precise": f"{asked}: no more seeds are needed",
        "max_seeds": f"{asked}; stopped at {until['max_seeds']} seeds, the most allowed",
        "canceled": f"{asked}; canceled, and resumed by retry",
        "failed": f"{asked}; stopped: {extension.reason}",
    }[extension.state]
    if extension.state == "open" and lost:
        going = f"{asked}; no seed is added, as job {lost[0].job_id} {lost[0].state}: resume the study"
    return f"{said}; {going}"


def extension(results: StudyResults) -> list[str]:
    """How far a study with `until` is, and what that means for its numbers."""
    if results.until is None:
        return []
    valid = "every interval and p holds at all numbers of seeds at once, so looking costs no level"
    return [f"{results.until.text}; {valid}"]


def _warnings(results: StudyResults) -> list[str]:
    places: dict[str, dict[str, int]] = {}
    for cell in results.cells:
        for code, count in cell.warnings.items():
            places.setdefault(code, {})[label(cell)] = count
    lines = []
    for code in sorted(places, key=lambda code: SEVERITIES.index(SEVERITY[code])):
        named = [f"{name} (runs: {count})" for name, count in places[code].items()]
        more = [f"and {len(named) - MAX_PLACES} more"] if len(named) > MAX_PLACES else []
        lines.append(f"{SEVERITY[code]} {code}: {', '.join([*named[:MAX_PLACES], *more])}")
    return lines


def _powers(results: StudyResults) -> list[str]:
    """What the study can find: by its primary question, and at the least and greatest power of each unit."""
    said: list[str] = []
    found: dict[Unit | None, list[tuple[float, str]]] = {}
    for cell in results.cells:
        for one in cell.comparisons:
            if one.power is not None and one.power.with_twice is not None:
                text = f"{label(cell)}, {cell.metric}, {one.arm}: {one.power.text}"
                if one.primary:
                    said.append(f"power of the primary question, to find a difference: {text}")
                else:
                    found.setdefault(cell.unit, []).append((one.power.resolves or one.power.with_twice, text))
    ends = [(min(listed), max(listed)) for listed in found.values()]
    return [*said, *(f"power: {text}" for pair in ends for _, text in dict.fromkeys(pair))]


def to_markdown(results: StudyResults) -> str:
    """The table of tested metrics with its notes."""
    titles = header(results)
    listed = [titles, ["---"] * len(titles), *rows(results)]
    shown = [f"| {' | '.join(map(escape_markdown, line))} |" for line in listed]
    return "\n".join([*shown, "", *(f"- {escape_markdown(line)}" for line in lines(results))]) + "\n"


def _spread(arm: ArmValue, unit: Unit | None) -> str:
    if arm.mean is None:
        return "-"
    sd = "" if arm.sd is None else f" ± {_number(arm.sd, unit)}"
    known = sum(one.value is not None for one in arm.seeds)
    some = "" if known == len(arm.seeds) else f" ({known} of {len(arm.seeds)} seeds have a value)"
    return f"{_number(arm.mean, unit)}{sd}{' %' if unit in PERCENT else ''}{some}"


def _difference(found: StudyComparison, unit: Unit | None) -> str:
    if found.difference is None:
        return "-"
    text = _number(found.difference, unit, sign=True)
    if found.ci_low is None or found.ci_high is None:
        return text
    return f"{text} [{_number(found.ci_low, unit, sign=True)}, {_number(found.ci_high, unit, sign=True)}]"


def _number(value: float, unit: Unit | None, *, sign: bool = False) -> str:
    return tenths(100 * value, sign=sign) if unit in PERCENT else f"{value:{'+' if sign else ''}.4g}"
