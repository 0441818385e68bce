"""Verbs on a job: each has its methods and its action, and its button in the states that allow it."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

from assay.service.client import AssayClient
from assay.service.contract.audit import ACTIONS
from assay.service.contract.states import JobState
from assay.service.contract.verbs import VERBS, JobAction, Situation, Verb
from assay.service.store.jobs import Jobs

AT_WORK = {"waiting", "queued", "starting", "running", "canceling"}
AGAIN = {"failed", "canceled", "timed_out"}


def offered(name: str, **situation: bool) -> set[str]:
    """The states of which the page has the button."""
    stated = {"planned": True, "doubted": False, "stranded": False} | situation
    stranded = stated.pop("stranded")
    verb = next(verb for verb in VERBS if verb.name == name)
    return {
        state.value
        for state in JobState
        if verb.button.offered(Situation(state, **stated, stranded=lambda: stranded))
    }


def test_the_audit_has_an_action_of_each_verb() -> None:
    assert [f"job.{verb.name}" for verb in VERBS] == [*get_args(JobAction)]
    assert set(get_args(JobAction)) < set(ACTIONS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_store_and_the_client_have_a_method_of_its_name(verb: Verb) -> None:
    does = inspect.signature(getattr(Jobs, verb.name)).parameters
    assert [*does] == ["self", "job_id", *(["limits"] if verb.limited else []), "by"]
    asks = inspect.signature(getattr(AssayClient, verb.name))
    assert [*asks.parameters] == ["self", "job_id"]
    assert asks.return_annotation == ("None" if verb.deletes else "JobView")
    assert bool(verb.said) != verb.deletes


def test_buttons_depend_on_the_state() -> None:
    assert offered("cancel") == AT_WORK
    assert offered("retry") == AGAIN
    assert offered("retry", doubted=True) == set()
    assert offered("replan") == offered("replan", doubted=True) == AGAIN
    assert offered("replan", stranded=True) == AT_WORK | AGAIN | {"succeeded"}
    assert offered("replan", planned=False, stranded=True) == set()
    assert offered("delete") == AGAIN | {"succeeded"}


def test_a_button_that_asks_first_has_a_second_label() -> None:
    assert all(bool(verb.button.consequence) == bool(verb.button.confirm) for verb in VERBS)
