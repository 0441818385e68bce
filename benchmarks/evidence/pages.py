"""Tables and pictures of the pages of evidence, made from the files beside them.

A page has `<!-- evidence NAME -->` and `<!-- end -->`; between them stand the answer to the primary question,
the picture, the table and the facts of docs/evidence/NAME.json.gz.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.service.plots.theme import Vega, frame
from assay.service.reports.numbers import params_text, row_params, strengths
from assay.service.studies.result_wire import StudyCell, StudyComparison, StudyResults
from benchmarks.evidence.archive import Archive, load
from benchmarks.evidence.mechanism_map import attack_of, is_map, map_plot, map_table
from benchmarks.evidence.spectral import is_spectral, spectral_lines, spectral_plot

PLACE = re.compile(r"(<!-- evidence (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HOUR = 3600
SHARES = ("proportion", "ratio")
QUESTIONS = ("primary question", "others")


def stale(folder: Path, *, write: bool) -> list[str]:
    """The pages and pictures that differ from their files, which `write` makes anew; names without a file."""
    problems, shown = [], set[str]()
    archives = {path.name.removesuffix(".json.gz"): path for path in sorted(folder.glob("*.json.gz"))}
    for page in sorted([*folder.glob("*.md"), folder.with_suffix(".md")]):
        text = page.read_text(encoding="utf-8")
        for name in PLACE.findall(text):
            shown.add(name[1])
        missing = shown - archives.keys()
        if missing:
            return [f"{page.name}: there is no {name}.json.gz" for name in sorted(missing)]
        fresh = PLACE.sub(lambda found: found[1] + section(found[2], archives[found[2]]) + found[3], text)
        problems += _settled(page, fresh, write=write)
    for name in sorted(shown):
        archive, _ = load(archives[name])
        problems += _settled(folder / f"{name}.svg", drawn(archive.results()), write=write)
    return problems + [f"{name}.json.gz: no page shows it" for name in sorted(archives.keys() - shown)]


def _settled(path: Path, fresh: str, *, write: bool) -> list[str]:
    if path.exists() and path.read_text(encoding="utf-8") == fresh:
        return []
    if write:
        path.write_text(fresh, encoding="utf-8")
        return []
    return [f"{path.name}: differs from its file; `python -m benchmarks.evidence write` makes it"]


def section(name: str, path: Path) -> str:
    """What a page shows of a study."""
    archive, _ = load(path)
    results = archive.results()
    primary = results.primary
    lines = [f"**{primary.text}.**\n"] if primary else []
    if is_map(results):
        lines += [
            f"![Accuracy under attack against clean accuracy]({name}.svg)\n",
            *map_table(results, label(attack_of(results))),
            "",
        ]
    elif is_spectral(results):
        lines += spectral_lines(results, name)
    else:
        lines.append(f"![Each arm less {results.baseline}, with 95 % intervals]({name}.svg)\n")
        lines += _table(results)
    asked = [one for cell in results.cells for one in cell.comparisons if one.primary and one.power]
    lines += [f"Power: {one.power.text}.\n" for one in asked if one.power]
    return "\n".join([*lines, _facts(name, path, archive), ""])


def _table(results: StudyResults) -> list[str]:
    others = [arm for arm in results.arms if arm != results.baseline]
    head = ["", results.baseline, *others]
    rows = [head, ["---"] * len(head)]
    for name, cell in zip(_labels(results), results.cells, strict=True):
        means = {one.arm: _mean(one.mean, one.sd, cell) for one in cell.arms}
        rows.append([name, *(means.get(arm, "") for arm in head[1:])])
        found = {one.arm: _difference(one, cell) for one in cell.comparisons}
        rows.append(["less the baseline", "", *(found.get(arm, "") for arm in others)])
    return [*("| " + " | ".join(row) + " |" for row in rows), ""]


def _labels(results: StudyResults) -> list[str]:
    """The rows' names; with the metric where an evaluation has several."""
    names = [label(cell) for cell in results.cells]
    told = zip(names, results.cells, strict=True)
    return [name if names.count(name) == 1 else f"{name}: {cell.metric}" for name, cell in told]


def label(cell: StudyCell) -> str:
    """An evaluation in a row or on an axis, with the parameters that tell it from others."""
    params = row_params(cell)
    telling = {*strengths(cell.evaluation), "corruption", "output"}
    named = {name: value for name, value in params.items() if name in telling and value}
    return f"{cell.evaluation} {params_text(named)}".strip()


def _mean(mean: float | None, sd: float | None, cell: StudyCell) -> str:
    if mean is None:
        return "no value"
    if cell.unit in SHARES:
        return f"{100 * mean:.1f} ± {100 * (sd or 0):.1f} %"
    return f"{mean:,.0f} ± {sd or 0:,.0f}" if mean >= 1000 else f"{mean:.4g} ± {sd or 0:.2g}"


def _difference(found: StudyComparison, cell: StudyCell) -> str:
    if found.difference is None or found.ci_low is None or found.ci_high is None:
        return found.note or "no interval"
    scale, digits = (100, 1) if cell.unit in SHARES else (1, 0 if abs(found.difference) >= 1000 else 3)
    ends = (found.difference, found.ci_low, found.ci_high)
    middle, low, high = (round(scale * end, digits) + 0.0 for end in ends)  # + 0.0: no -0.0
    text = f"{middle:+,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"
    if found.test is None:
        return text
    p = found.test.p_value if found.primary else found.test.adjusted_p_value
    return f"{text}, {'primary' if found.primary else 'adjusted'} p {p:.2g}"


def _facts(name: str, path: Path, archive: Archive) -> str:
    facts, seeds = archive.facts, archive.plan.seeds
    parts = facts.get("parts", [facts])
    hours, threads = facts["seconds"] / HOUR, facts["device"]["threads"]
    devices = dict.fromkeys(f"{one['device']['name']} ({one['device']['instruction_set']})" for one in parts)
    torch = dict.fromkeys(one["packages"]["torch"] for one in parts)
    code = dict.fromkeys(f"`{_short(one['code']['commit'])}`" for one in parts)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    file = path.with_name(f"{name}.study.json")
    design = hashlib.sha256(file.read_bytes()).hexdigest()
    asked = json.loads(file.read_text(encoding="utf-8"))["seeds"]
    planned = asked if isinstance(asked, int) else len(asked)
    cut = f" of {planned} designed" if planned > len(seeds) else ""
    registered = f" It was registered as `{facts['design']}`." if facts.get("design") else ""
    measured = [one for arm in archive.arms for run in arm.runs for one in run.results.values()]
    forward, backward = (
        sum(getattr(one, f"{way}_passes") for one in measured) for way in ("forward", "backward")
    )
    when = "before" if facts["fixed_at"] < facts["first_run"] else "after"
    fixed, begun = (facts[name][:16].replace("T", " ") for name in ("fixed_at", "first_run"))
    return (
        f"Fixed at {fixed} UTC, {when} the study's first run at {begun[11:]}: [design]({name}.study.json),"
        f" SHA-256 of the file `{design[:16]}`.{registered} {facts['jobs']} jobs, seeds {seeds[0]} to"
        f" {seeds[-1]}{cut}, {hours:.1f} hours on {threads} thread of {', '.join(devices)}; evaluations took"
        f" {forward:,} forward and {backward:,} backward passes of an example; torch {', '.join(torch)}, code"
        f" {', '.join(code)}. [Outcomes]({name}.json.gz), SHA-256 `{digest[:16]}`."
    )


def _short(commit: str) -> str:
    return commit[:8] + ("-dirty" if commit.endswith("-dirty") else "")


def drawn(results: StudyResults) -> str:
    """The differences of all arms with their intervals, a panel for each arm, or the map, as SVG."""
    import vl_convert

    arms = [arm for arm in results.arms if arm != results.baseline]
    if is_map(results):
        plot = map_plot(results)
    elif is_spectral(results):
        plot = spectral_plot(results)
    else:
        plot = _plot(results, arms)
    text = str(vl_convert.vegalite_to_svg(plot, allowed_base_urls=[]))
    return text if text.endswith("\n") else f"{text}\n"


def _plot(results: StudyResults, arms: Sequence[str]) -> Vega:
    """The differences of shares, and below those of other units, which have a scale of their own."""
    groups = [
        (shares, rows) for shares in (True, False) for rows in _of_a_size(_rows(results, shares=shares))
    ]
    panels = [_panels(rows, arms, results.baseline, shares=shares) for shares, rows in groups if rows]
    said = "; ".join(
        f"{row['arm']}, {row['cell']}: {row['d']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"
        for _, rows in groups
        for row in rows
    )
    body: Vega = panels[0] if len(panels) == 1 else {"vconcat": panels}
    body["padding"] = {"left": 24, "right": 24, "top": 5, "bottom": 5}  # Other fonts are wider
    return frame("evidence", f"Less {results.baseline}, with 95 % intervals", body, description=said)


def _of_a_size(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows in one scale; metrics of very different sizes in a scale each."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(row["cell"], []).append(row)
    widest = [max(abs(row["d"]) for row in of_cell) for of_cell in cells.values()]
    apart = len(widest) > 1 and max(widest) > 100 * min(widest) > 0
    return [*cells.values()] if apart else [rows]


def _rows(results: StudyResults, *, shares: bool) -> list[dict[str, Any]]:
    scale = 100 if shares else 1
    return [
        {
            "arm": one.arm,
            "cell": name,
            "d": scale * one.difference,
            "low": scale * one.ci_low,
            "high": scale * one.ci_high,
            "question": QUESTIONS[0 if one.primary else 1],
        }
        for name, cell in zip(_labels(results), results.cells, strict=True)
        if (cell.unit in SHARES) == shares
        for one in cell.comparisons
        if one.difference is not None and one.ci_low is not None and one.ci_high is not None
    ]


def _panels(rows: Sequence[Mapping[str, Any]], arms: Sequence[str], baseline: str, *, shares: bool) -> Vega:
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    colour: Vega = {
        "field": "question",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(QUESTIONS)},
    }
    y: Vega = {"field": "cell", "type": "nominal", "sort": cells, "title": None, "axis": {"labelLimit": 240}}
    x: Vega = {
        "field": "d",
        "type": "quantitative",
        "title": f"{'points' if shares else 'value'}, less {baseline}",
    }
    ends: Vega = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour}
    layer: list[Vega] = [
        {"mark": {"type": "rule", "strokeDash": [3, 3]}, "encoding": {"x": {"datum": 0}}},
        {"mark": {"type": "rule", "strokeWidth": 2.5}, "encoding": ends},
        {
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": {"x": x, "y": y, "color": colour},
        },
    ]
    body: Vega = {
        "data": {"values": list(rows)},
        "facet": {"field": "arm", "type": "nominal", "sort": list(arms), "title": None},
        "columns": 3,
        "spec": {"width": 170, "height": {"step": 22}, "layer": layer},
    }
    widest = [max(abs(row["d"]) for row in rows if row["arm"] == arm) for arm in arms]
    if max(widest) > 100 * min(widest):
        body["resolve"] = {"scale": {"x": "independent"}}
    return body
