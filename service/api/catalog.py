"""Routes of the catalog of components."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from assay.service.api.deps import CatalogDep, only
from assay.service.api.errors import documented
from assay.service.catalog.component import Component
from assay.service.contract.errors import NotFound
from assay.service.contract.results import Page

router = APIRouter(prefix="/api/v1/catalog", tags=["catalog"])

Kind = Literal["model", "attention", "attack", "corruption", "words", "data", "recipe", "evaluation", "suite"]


@router.get(
    "",
    operation_id="list_catalog",
    summary="List all components",
    responses=documented(),
    dependencies=[only("kind")],
)
def list_catalog(catalog: CatalogDep, kind: Kind | None = None) -> Page[Component]:
    """Models, attacks, data sets and so on, each with the JSON Schema of its parameters."""
    return Page(items=list(catalog.list(kind)))


@router.get(
    "/{kind}/{name}",
    operation_id="get_component",
    summary="Look at a component",
    responses=documented(NotFound),
    dependencies=[only()],
)
def get_component(
    kind: Annotated[str, Path(examples=["attack"])],
    name: Annotated[str, Path(examples=["pgd"])],
    catalog: CatalogDep,
) -> Component:
    """One component; an unknown name is answered with the nearest known one."""
    return catalog.find(kind, name)
