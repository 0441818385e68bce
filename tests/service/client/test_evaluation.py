"""What an evaluation in one call asks for."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.client import evaluation, one_line, program_export
from assay.service.client.data_place import place_of
from assay.service.client.evaluation import (
    PROBED,
    Request,
    check_device,
    check_request,
    complete_spec,
    ended,
    evaluation_of,
    measured_cost,
    outcome_text,
    same_job,
)
from assay.service.client.one_line import Subject
from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.problems import Problems, path_text
from assay.service.contract.results import JobError
from assay.service.contract.states import JobState


class Service:
    """A client whose service has the catalog, and takes every upload but broken ones."""

    state: Path | None = None

    def __init__(self) -> None:
        self.awaited: list[str] = []

    def catalog(self, kind: str) -> list[dict[str, Any]]:
        return [one.model_dump(by_alias=True) for one in load().list(kind)]

    def component(self, kind: str, name: str) -> dict[str, Any]:
        return next(one for one in self.catalog(kind) if one["name"] == name)

    def checkpoint(self, name: str) -> Any:
        return type("Checkpoint", (), {"model": {"name": "exported"}, "state": "ready"})

    def upload_checkpoint(self, name: str, path: Path, **more: Any) -> Any:
        if path.read_bytes() == b"broken":
            raise InvalidSpec("body: is no program", [ErrorDetail(loc=["body"], message="is no program")])
        return self.checkpoint(name)

    def wait_for_checkpoint(self, name: str) -> Any:
        self.awaited.append(name)
        return self.checkpoint(name)

    def dry_run(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {"spec": spec, "estimate": {}, "warnings": []}


def evaluations(data: str, *asked: str, suites: tuple[str, ...] = ()) -> list[str]:
    request = Request(Subject("checkpoint:ours"), place_of(data), suites, asked)
    spec, _ = complete_spec(Service(), request)  # type: ignore[arg-type]
    return [one.get("name") or one["suite"] for one in spec["evaluations"]]


def test_clean_accuracy_comes_before_attacks() -> None:
    assert evaluations("digits", "pgd", "square") == ["clean", "pgd", "square"]
    assert evaluations("digits", "pgd", "clean") == ["pgd", "clean"]
    assert evaluations("digits", "pgd", suites=("quick",)) == ["pgd", "quick"]
    assert evaluations("wikitext", "word_swap") == ["word_swap"], "the task has none"


def test_an_unknown_data_set_is_refused_before_an_upload() -> None:
    with pytest.raises(InvalidSpec) as caught:
        evaluations("digts", "pgd")
    (detail,) = caught.value.details
    assert (detail.loc, detail.given, detail.nearest) == (["data"], "digts", "digits")


def test_a_refused_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"broken")
    with pytest.raises(InvalidSpec, match=r"model: .*net.pt2: is no program"):
        one_line.model_spec(Service(), Subject(str(path)), {"name": "digits"})  # type: ignore[arg-type]


def test_places_in_errors_are_those_of_the_call(tmp_path: Path) -> None:
    class Refusing(Service):
        loc: list[str | int]

        def refuse(self, *_: Any, **more: Any) -> Any:
            raise InvalidSpec(
                f"{path_text(self.loc)}: is wrong", [ErrorDetail(loc=self.loc, message="is wrong")]
            )

        dry_run = upload_checkpoint = refuse

    service, path = Refusing(), tmp_path / "w.safetensors"
    path.write_bytes(b"weights")
    asked = Request(Subject("checkpoint:ours"), place_of("digits"), (), ["pgd eps=1"])
    service.loc = ["evaluations", 1, "params", "eps"]
    with pytest.raises(InvalidSpec, match=r"^attack 'pgd eps=1'.eps: is wrong"):
        complete_spec(service, asked)  # type: ignore[arg-type]
    for query, words in (("normalization", "^normalization: is wrong"), ("model", "^model: is wrong")):
        service.loc = ["query", query]
        with pytest.raises(InvalidSpec, match=words) as caught:
            one_line.model_spec(service, Subject(str(path)), {"name": "digits"})  # type: ignore[arg-type]
    assert f"--weights {path}" in caught.value.details[0].allowed


def test_a_path_at_a_service_elsewhere_shows_the_json_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    (tmp_path / "shapes").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "AssayClient", lambda *_: nullcontext(Service()))
    for text in ("image_folder:shapes", "./shapes"):
        with pytest.raises(InvalidSpec) as caught, evaluation.service_for(place_of(text), url="http://far"):
            pass
        (detail,) = caught.value.details
        assert (
            """--data '{"name": "image_folder", "params": {"folder": "shapes", "splits": "all"}}'"""
            in detail.allowed
        )
        assert "--state FOLDER" in detail.allowed


def test_a_rejected_program_is_named_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rejecting(Service):
        def wait_for_checkpoint(self, name: str) -> Any:
            return type("Checkpoint", (), {"state": "rejected", "error": None, "faults": {}})

    monkeypatch.setattr(one_line, "written_program", made)
    serve = "`assay serve --state there`, and in another terminal "
    for state, before in ((None, ""), (Path("there"), serve)):
        service = Rejecting()
        service.state = state
        with pytest.raises(InvalidSpec) as caught:
            one_line.model_spec(service, Subject("nets:build"), {"name": "digits"})  # type: ignore[arg-type]
        assert caught.value.details[0].given == "nets:build"
        assert f"; {before}`assay checkpoints show " in caught.value.message


@contextmanager
def made(*_: Any) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
        yield Path(file.name)


def test_the_check_of_a_program_is_awaited_before_its_classes_are_compared_with_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(command: list[str], **more: Any) -> Any:
        Path(command[command.index("--output") + 1]).write_bytes(b"program")
        return type("Done", (), {"returncode": 0, "stderr": "warning: it returns sums\nelse\n"})

    monkeypatch.setattr(program_export.subprocess, "run", export)
    service, told = Service(), []
    subject = Subject("nets:build", tell=told.append)
    model = one_line.model_spec(service, subject, {"name": "digits"})  # type: ignore[arg-type]
    checking = "checking nets:build: an evaluator loads torch and opens the file"
    assert told == ["exporting nets:build", "warning: it returns sums", checking]
    assert model["name"] == "exported"
    assert len(service.awaited) == 1
    (tmp_path / "net.pt2").write_bytes(b"program")
    one_line.model_spec(service, Subject(str(tmp_path / "net.pt2")), {"name": "digits"})  # type: ignore[arg-type]
    assert len(service.awaited) == 2


def test_what_became_of_a_job_is_said_once() -> None:
    class Ended:
        state, message = JobState.TIMED_OUT, ""
        error = JobError(type="timed_out", message="longer than 1 second")

    assert outcome_text(Ended()) == "timed_out: longer than 1 second"  # type: ignore[arg-type]
    Ended.state = JobState.FAILED
    assert outcome_text(Ended()) == "failed: timed_out: longer than 1 second"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pgdd epsilon=4/255", "attack 'pgdd epsilon=4/255'.name: there is no evaluation or attack 'pgdd'"),
        ("pgd eps=4/255", "attack 'pgd eps=4/255'.eps: unknown parameter; did you mean 'epsilon'?"),
        ("pgd steps=0", "attack 'pgd steps=0'.steps: must be"),
        ("fgsm epsilon=1/255 epsilon=2/255", "epsilon is given twice"),
    ],
)
def test_a_wrong_attack_is_refused_before_a_service_starts(text: str, words: str) -> None:
    request = Request(Subject("checkpoint:ours"), place_of("digits"), evaluations=[text])
    with pytest.raises(InvalidSpec) as caught:
        check_request(request, own=True)
    assert words in str(caught.value)


def test_so_are_attacks_that_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(Subject("checkpoint:ours"), place_of("digits"), evaluations=["corruptions"])
    check_request(request, own=True)
    monkeypatch.setattr(evaluation, "has_module", lambda name: name != "imagecorruptions")
    with pytest.raises(InvalidSpec, match="'frost' reads files that this service's workers do not have"):
        check_request(request, own=True)
    check_request(request, own=False)


def test_so_are_other_wrong_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for subject, data, suite, words in (
        ("checkpoint:ours", "digits", "standart", "there is no suite 'standart'"),
        ("checkpoint:ours", "digitz", "quick", "there is no such data set"),
        ("resnet_50", "digits", "quick", "is no model"),
    ):
        request = Request(Subject(subject), place_of(data), suites=[suite])
        check_request(request, own=False)
        with pytest.raises(InvalidSpec, match=words):
            check_request(request, own=True)
        with monkeypatch.context() as patch:  # a package may have them
            patch.setattr(evaluation.importlib.metadata, "entry_points", lambda **_: ["one"])
            check_request(request, own=True)


def test_faults_of_attacks_are_told_beside_others_where_a_service_runs() -> None:
    """By themselves the service says them: it may have other components."""
    request = Request(Subject("checkpoint:ours"), place_of("digits"), evaluations=["pgdd epsilon=4/255"])
    check_request(request, own=False)
    found = Problems()
    found.add(("data",), "there is no such folder")
    with pytest.raises(InvalidSpec) as caught:
        check_request(request, own=False, found=found)
    assert [detail.message[:16] for detail in caught.value.details] == [
        "there is no such",
        "there is no eval",
    ]


def test_a_number_that_no_float_holds_is_told_as_it_was_typed() -> None:
    found = evaluation.evaluation_of("pgd epsilon=1e400 steps=NaN")
    assert found["params"] == {"epsilon": "1e400", "steps": "NaN"}


def test_an_unknown_parameter_hides_no_fault_of_another() -> None:
    request = Request(
        Subject("job:x"), place_of("digits"), (), ("pgd epsilon=8 stepz=3", "pgd epsilon=8 nrom=L2")
    )
    with pytest.raises(InvalidSpec) as caught:
        evaluation.check_request(request, own=True)
    assert [(one.loc[-1], one.nearest) for one in caught.value.details] == [
        ("stepz", "steps"), ("epsilon", "8/255"), ("nrom", "norm"),
    ]  # fmt: skip


def test_a_list_needs_no_quotes() -> None:
    found = evaluation_of("autoattack epsilon=8/255 stages=[apgd_ce,square]")
    assert found["params"]["stages"] == ["apgd_ce", "square"]
    assert evaluation_of('a x=["b","c"]')["params"]["x"] == ["b", "c"]
    assert evaluation_of("a 'x=[1, 2]'")["params"]["x"] == [1, 2]
    assert evaluation_of("a x=[4/255,8/255]")["params"]["x"] == ["4/255", "8/255"]


class Waiting(Service):
    """A service where every job succeeds at once; one of the asked spec is left unfinished."""

    def __init__(self, left: dict[str, Any]) -> None:
        super().__init__()
        self.submitted: list[dict[str, Any]] = []
        self._left = type("Job", (), {"id": "left", "spec": left, "state": JobState.QUEUED})

    def jobs(self, **_: Any) -> list[Any]:
        return [self._left]

    def job(self, job_id: str) -> Any:
        return self._left

    def submit(self, spec: dict[str, Any]) -> Any:
        self.submitted.append(spec)
        return type("Job", (), {"id": "new"})

    def wait(self, job_id: str, **_: Any) -> Any:
        return type("Job", (), {"id": job_id, "state": JobState.SUCCEEDED})


def test_an_unfinished_job_goes_on_at_a_service_of_ones_own_only() -> None:
    """Elsewhere it is another user's, who may cancel it."""
    request = Request(Subject("checkpoint:ours"), place_of("digits"), (), ["pgd"])
    spec, _ = complete_spec(Service(), request)  # type: ignore[arg-type]
    for own, job in ((True, "left"), (False, "new")):
        service = Waiting(spec)
        assert ended(service, request, own=own).id == job  # type: ignore[arg-type]
        assert bool(service.submitted) is not own


@pytest.mark.parametrize(("limit", "probed"), [(8, 8), (PROBED, PROBED), (1000, PROBED), (None, PROBED)])
def test_a_probe_for_the_cost_takes_no_more_examples_than_the_job(limit: int | None, probed: int) -> None:
    service = Waiting({})
    service.dry_run = lambda spec: {"estimate": {"seconds": 1.0, "seconds_measured": False}}  # type: ignore[method-assign]
    spec = {"kind": "evaluate", "name": "x", "seed": 0, "model": {}, "data": {"name": "digits"}}
    measured_cost(service, spec | {"execution": {}, "priority": 5, "limit": limit})  # type: ignore[arg-type]
    assert [one["limit"] for one in service.submitted] == [probed]


def test_a_device_that_is_not_there_is_refused() -> None:
    warning = {"code": "no_worker_with_devices", "message": "", "evidence": {}}
    spec = {"execution": {"device": "cuda"}}
    check_device(spec, [])
    with pytest.raises(InvalidSpec, match="device: this machine has no such device"):
        check_device(spec, [warning])


def test_a_job_that_ended_while_the_call_began_is_the_same_job() -> None:
    class Jobs:
        now = JobState.SUCCEEDED

        def job(self, job_id: str) -> Any:
            return type("Job", (), {"id": job_id, "state": self.now})

    left: Any = [type("Job", (), {"id": name, "spec": {"a": name}}) for name in ("x", "y")]
    client: Any = Jobs()
    assert same_job(client, left, {"a": "y"}).id == "y"  # type: ignore[union-attr]
    assert same_job(client, left, {"a": "z"}) is None
    Jobs.now = JobState.FAILED
    assert same_job(client, left, {"a": "y"}) is None
    Jobs.now = JobState.RUNNING
    assert same_job(client, left, {"a": "y"}).id == "y"  # type: ignore[union-attr]


def test_what_an_export_says_before_its_error_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(said: str) -> Any:
        return lambda *_, **__: subprocess.CompletedProcess([], 2, "", said)

    def faults(said: str, *more: str) -> list[tuple[str, str, Any]]:
        monkeypatch.setattr(program_export.subprocess, "run", failing(said))
        arguments = ["nets:build", *more]
        with (
            pytest.raises(InvalidSpec) as caught,
            program_export.written_program(program_export.EXPORT, arguments, ("model",), "net"),
        ):
            pass
        return [(".".join(map(str, one.loc)), one.message, one.given) for one in caught.value.details]

    said = "hello from an import\nwarning: w\nerror: it has 7 logits\nerror: weights: missing: head\n"
    assert faults(said, "--weights", "w.safetensors") == [
        ("model", "it has 7 logits", "nets:build"),
        ("model.weights", "missing: head", "w.safetensors"),
    ]
    assert faults("error: weights: none") == [("model", "weights: none", "nets:build")]
    assert faults("Traceback\nKeyError: 1") == [("model", "Traceback\nKeyError: 1", "nets:build")]
    assert faults("") == [("model", "it ended with code 2", "nets:build")]
