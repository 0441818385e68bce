"""Every answer of a job in the laws is one that its supervisor allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.checked_reports import check_answers


@pytest.fixture(autouse=True, scope="module")
def answers_are_checked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        check_answers(patch)
        yield
