"""The submit page without JavaScript: what a form's buttons do, and what it says of wrong fields."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from assay.service.cli.main import build_parser
from assay.service.dashboard.formats import size
from assay.service.settings import Settings
from tests.service.conftest import Worker

Make = Callable[..., dict[str, Any]]
HTML = {"Accept": "text/html"}


class Page(HTMLParser):
    """Fields of the form with their values, and the texts of the parts with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.fields: dict[str, str] = {}
        self.ids: list[str] = []
        self._select = self._textarea = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        if tag == "input" and "name" in given:
            self.fields[given["name"]] = given.get("value", "")
        if tag == "select":
            self._select = given["name"]
            self.fields[self._select] = ""
        if tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = given.get("value", "\0")
        if tag == "textarea":
            self._textarea = given["name"]
            self.fields[self._textarea] = ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.fields[self._textarea] += data
        if self._select and self.fields[self._select] == "\0":
            self.fields[self._select] = data

    def handle_endtag(self, tag: str) -> None:
        self._select = "" if tag == "select" else self._select
        self._textarea = "" if tag == "textarea" else self._textarea


def get(api: httpx.Client, path: str, status: int = 200) -> Page:
    answer = api.get(path, headers=HTML)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


def press(api: httpx.Client, page: Page, action: str, status: int = 200, **changes: str) -> Page:
    fields = {**page.fields, "action": action, **{key.replace("__", "."): v for key, v in changes.items()}}
    answer = api.post("/submit", data=fields, headers=HTML)
    assert answer.status_code == status, answer.text
    return Page(answer.text)


def submitted(api: httpx.Client, page: Page, **changes: str) -> dict[str, Any]:
    answer = api.post("/submit", data={**page.fields, "action": "submit", **changes}, headers=HTML)
    assert answer.status_code == 303, answer.text
    job: dict[str, Any] = api.get(f"/api/v1{answer.headers['Location']}").json()
    return job


def test_a_module_of_the_users_own_has_a_card_that_says_what_to_do(
    api: httpx.Client, settings: Settings
) -> None:
    card = get(api, "/submit").text.split("Your own module")[1].split("</details>")[0]
    address = str(api.base_url).rstrip("/")
    for line in (
        f"assay evaluate my_models:build --data NAME --url {address}",
        "assay evaluate my_models:build --data ./photos",
        f"assay checkpoints upload NAME model.pt2 --url {address}",
    ):
        assert f"<code>{line}</code>" in card
        parsed = build_parser().parse_args(shlex.split(line)[1:])
        assert parsed.url == (address if "--url" in line else None)
    assert f"at most {size(settings.max_checkpoint_bytes)}" in card


def test_a_training_is_submitted_from_the_empty_form(api: httpx.Client) -> None:
    page = get(api, "/submit")
    assert "problem" not in page.text.split('id="problems"')[1].split("</div>")[0]
    page = press(api, page, "update", kind="train")
    page = press(
        api, page, "update", model="tiny_vit", data="digits", recipe="short", name="mine", tags="a, b"
    )
    page.fields["model.params.width"] = "16"
    job = submitted(api, page)
    assert (job["kind"], job["name"], job["tags"], job["state"]) == ("train", "mine", ["a", "b"], "queued")
    assert job["spec"]["model"]["params"] == {"width": 16, "heads": 4}


def test_a_form_is_not_submitted_before_its_new_fields_were_seen(api: httpx.Client) -> None:
    page = press(api, get(api, "/submit"), "submit", model="tiny_vit", data="digits", add="attack/pgd")
    assert "Not submitted yet" in page.text
    assert page.fields["evaluations.0.name"] == "pgd"
    assert {"model.params.width", "evaluations.0.params.epsilon"} <= page.fields.keys()
    assert api.get("/api/v1/jobs").json()["items"] == []
    page.fields["evaluations.0.params.epsilon"] = "1/255"
    assert submitted(api, page)["spec"]["evaluations"][0]["params"] == {"epsilon": "1/255", "steps": 10}


def test_rows_are_added_copied_and_removed(api: httpx.Client) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "add", add="evaluation/clean")
    page = press(api, page, "add", add="attack/pgd")
    page = press(api, page, "copy.1", evaluations__1__params__epsilon="1/255")
    assert [page.fields[f"evaluations.{i}.name"] for i in range(3)] == ["clean", "pgd", "pgd"]
    assert page.fields["evaluations.2.params.epsilon"] == "1/255"
    page = press(api, page, "remove.0")
    assert [page.fields[f"evaluations.{i}.name"] for i in range(2)] == ["pgd", "pgd"]
    assert "evaluations.2.name" not in page.fields
    press(api, page, "remove.9")


def test_wrong_fields_are_named_beside_them_and_at_the_top(api: httpx.Client) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "add", add="attack/pgd")
    changes = {"model.params.width": "wide", "evaluations.0.params.steps": "0", "seed": "-1"}
    answer = api.post("/submit", data={**page.fields, **changes, "action": "submit"}, headers=HTML)
    assert answer.status_code == 422
    text = answer.text
    for name in changes:
        assert f'href="#f-{name}"' in text
        field = text.split(f'id="e-{name}"')[1].split("</div>")[0]
        assert "must be" in field
        assert 'aria-invalid="true"' in text.split(f'id="f-{name}"')[1].split(">")[0]
    assert Page(text).fields["model.params.width"] == "wide"
    rule = press(api, page, "submit", 422, model__params__heads="5")
    assert "heads must divide width" in rule.text.split('id="e-model"')[1].split("</div>")[0]


def test_the_form_offers_what_the_kind_of_job_may_have(api: httpx.Client) -> None:
    def offered(page: Page) -> tuple[set[str], set[str]]:
        options = {name.split(".")[1] for name in page.fields if name.startswith("execution.")}
        select = page.text.split('name="execution.dtype"')[1].split("</select>")[0]
        return options, {name for name in ("float16", "recipe", "tf32", "bfloat16") if f">{name}<" in select}

    page = get(api, "/submit?model=tiny_vit&data=digits")
    of_evaluations = {"screening", "repeat", "capture", "channels_last", "compile"}
    common = {"device", "dtype", "batch_size"}
    assert offered(page) == (common | of_evaluations, {"tf32", "bfloat16"})
    switched = press(
        api, page, "update", kind="train", execution__screening="bfloat16", execution__dtype="tf32"
    )
    assert offered(switched) == (common | {"devices"}, {"float16", "recipe", "tf32", "bfloat16"})
    assert switched.fields["execution.dtype"] == "tf32"


def test_a_field_that_the_form_does_not_have_is_refused(api: httpx.Client) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "add", add="evaluation/clean")
    answer = press(api, page, "submit", 422, model__params__widht="8")
    assert "model.params.widht" in answer.text
    assert "did you mean <code>model.params.width</code>?" in answer.text


def test_the_page_shows_cost_warnings_and_commands(api: httpx.Client) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "add", add="attack/pgd")
    page = press(api, page, "check", limit="100")
    cost = page.text.split('id="cost"')[1].split("</section>")[0]
    assert "1,100" in cost
    assert "<dt>Examples</dt><dd>100</dd>" in cost
    assert "<dt>Limit</dt>" not in cost
    assert " Within what a job may take: " in cost.partition("</dl>")[2]
    assert "untrained_weights" in cost
    commands = page.text.split('id="snippets"')[1]
    for word in (
        "curl -s -X POST http://127.0.0.1:8000/api/v1/jobs",
        "assay submit",
        "AssayClient",
        "&#34;limit&#34;: 100",
    ):
        assert word in commands


def test_a_form_sent_twice_is_one_job_and_a_changed_one_asks(api: httpx.Client) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "add", add="evaluation/clean")
    first = submitted(api, page)
    assert submitted(api, page)["id"] == first["id"]
    again = press(api, page, "submit", 409, name="another")
    assert "submitted before" in again.text
    assert submitted(api, again)["id"] != first["id"]


def test_json_and_form_are_two_views_of_one_job(api: httpx.Client, evaluate_body: Make) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "add", add="attack/pgd")
    page = press(api, page, "json", evaluations__0__params__steps="3")
    body = json.loads(page.fields["json"])
    assert body["evaluations"] == [{"name": "pgd", "params": {"steps": 3}}]
    page.fields["json"] = json.dumps(evaluate_body())
    back = press(api, page, "form")
    assert back.fields["name"] == "an evaluation"
    assert back.fields["evaluations.1.params.epsilon"] == "2/255"
    assert submitted(api, page)["name"] == "an evaluation"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("{", 400, "JSON"),
        ("[1]", 422, "must be a JSON object"),
        ('{"kind": "evaluate", "evaluations": [NaN]}', 400, "NaN"),
        ('{"kind": "evaluat"}', 422, "did you mean <code>evaluate</code>"),
        ('{"kind": "evaluate", "model": [[[[1]]]], "data": 3, "evaluations": {"a": "b"}}', 422, "data"),
        ("[" * 5000, 400, "nested"),
    ],
)
def test_json_that_is_no_job_is_refused_with_the_text_kept(
    api: httpx.Client, text: str, status: int, words: str
) -> None:
    page = press(api, get(api, "/submit"), "json")
    page = press(api, page, "submit", status, json=text)
    assert words in page.text
    assert page.fields["json"] == text


def test_a_job_is_cloned_with_what_differs_from_the_defaults(api: httpx.Client, evaluate_body: Make) -> None:
    body = evaluate_body(model={"name": "tiny_vit", "params": {"width": 64, "heads": 4}}, seed=3)
    job = api.post("/api/v1/jobs", json=body).json()
    page = get(api, f"/submit?from={job['id']}")
    assert (page.fields["model.params.width"], page.fields["model.params.heads"]) == ("64", "")
    assert page.fields["seed"] == "3"
    copy = submitted(api, page)
    assert copy["id"] != job["id"]
    assert copy["spec"] == job["spec"]


def test_weights_of_a_training_begin_an_evaluation(
    api: httpx.Client, train_body: Make, worker: Worker
) -> None:
    trained = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    worker.train(trained)
    page = get(api, f"/submit?weights={trained}")
    assert page.fields["model.weights.job"] == trained
    assert page.fields["evaluations.0.name"] == "clean"
    assert 'placeholder="16"' in page.text.split('id="f-model.params.width"')[1].split(">")[0]
    assert submitted(api, page)["spec"]["model"]["params"]["width"] == 16


def test_links_to_the_page_are_checked(api: httpx.Client, evaluate_body: Make) -> None:
    assert "did you mean" in get(api, "/submit?preset=quik", 422).text
    get(api, "/submit?preset=quick&example=model/vit", 422)
    get(api, "/submit?from=nothing", 404)
    other = api.post("/api/v1/jobs", json=evaluate_body()).json()["id"]
    assert "must be the id of a training job" in get(api, f"/submit?weights={other}", 422).text
    get(api, "/submit?example=model/tiny_vitt", 404)
    get(api, "/submit?model=tiny_vitt", 404)
    get(api, "/submit?mode=json", 422)


def test_every_preset_opens(api: httpx.Client) -> None:
    for name in ("autoattack", "curve", "quick", "standard", "train"):
        get(api, f"/submit?preset={name}")


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "\u202eevil", "\U0001f600" * 50, "a\x01b", 'x" y']
)
def test_no_name_breaks_the_form(api: httpx.Client, evaluate_body: Make, name: str) -> None:
    page = press(api, get(api, "/submit?model=tiny_vit&data=digits"), "check", name=name, tags=name)
    assert "<script>alert" not in page.text
    assert page.fields["name"] == name
    page = press(api, page, "check", model=name, model__shown=name, evaluations__0__name=name)
    assert "<script>alert" not in page.text
    body = evaluate_body(name=name)
    job = api.post("/api/v1/jobs", json=body).json()
    assert get(api, f"/submit?from={job['id']}").fields["name"] == name
