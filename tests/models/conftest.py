from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Broken = Callable[..., list[str]]


@pytest.fixture
def broken() -> Broken:
    """Messages of the rules of a module that the parameters of a model break."""

    def messages(module: ModuleType, **parameters: Any) -> list[str]:
        own = SimpleNamespace(**({"mlp_ratio": 4.0} | parameters))
        names = {"model": own, "params": own}
        return [message for rule, message in module.RULES if not eval(rule, names)]

    return messages
