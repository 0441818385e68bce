"""When the design of a study was fixed, before its first run or after, and how a reader is told."""

from __future__ import annotations

from datetime import UTC, datetime

from assay.service.contract.times import iso
from assay.service.studies.designs.digest import design_of, digest_of
from assay.service.studies.designs.rows import AddedSeeds
from assay.service.studies.designs.wire import PREFIX, StudyFixing
from assay.service.studies.rows import StudyRow

CHANGED = "the stored study has not the digest of its design: it was changed"


def fixing_of(study: StudyRow) -> StudyFixing | None:
    """When the design of a study was fixed; None for a study of an earlier version.

    A design is fixed when it is registered, else when the study is posted. Seeds that a user adds are
    fixed when they are added; seeds that the rule `until` adds are of the design.
    """
    if study.design is None or study.fixing is None:
        return None
    fixing = study.fixing
    registered, added = fixing["registered_at"], fixing["added"]
    late = [one for one in added if not one.get("by_rule")]
    reasons = [*fixing["earlier"], *(_added(one) for one in late if one["begun"])]
    posted = [seed for seed in study.spec["seeds"] if not any(seed in one["seeds"] for one in added)]
    if digest_of(design_of({**study.spec, "seeds": posted}, study.templates)) != study.design:
        reasons.append(CHANGED)
    alone = reasons == [_added(one) for one in late if one["begun"]] != []
    when = "before" if not reasons else "after"
    text = f"fixed {when} the first run{' (its added seeds alone)' if alone else ''}: "
    text += "stored with the study" if registered is None else "registered"
    at = study.created_at if registered is None else registered
    text += f" at {_time_text(at)} as {PREFIX}{study.design}"
    text += f", study {fixing['number']} of the design" if fixing["number"] > 1 else ""
    remarks = [_added(one) for one in late if not one["begun"]]
    remarks += [fixing["changed"]] if "changed" in fixing else []
    return StudyFixing(
        design=study.design,
        registered_at=None if registered is None else iso(registered),
        fixed_at=iso(max([at, *(one["at"] for one in late)])),
        fixed="after" if reasons else "before",
        reasons=reasons,
        remarks=remarks,
        number=fixing["number"],
        text="; ".join([text, *reasons, *remarks]),
    )


def _time_text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _added(one: AddedSeeds) -> str:
    seeds = f"seed{'' if len(one['seeds']) == 1 else 's'} {', '.join(map(str, one['seeds']))}"
    return f"{seeds} added at {_time_text(one['at'])}, {'after' if one['begun'] else 'before'} the first run"
