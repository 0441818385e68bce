"""A client of the service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from assay.service.client import AssayClient


@pytest.fixture
def client(transport: Any) -> Iterator[AssayClient]:
    with AssayClient(transport=transport) as client:
        yield client
