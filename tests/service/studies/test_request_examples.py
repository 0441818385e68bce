"""Request bodies of studies in the OpenAPI document."""

from __future__ import annotations

import httpx

from assay.service.studies.wire import MoreSeeds, StudySpec


def test_the_request_bodies_of_studies_are_their_specs(api: httpx.Client) -> None:
    document = api.get("/openapi.json").json()
    for path, model in (("", StudySpec), ("/{study_id}/seeds", MoreSeeds)):
        body = document["paths"][f"/api/v1/studies{path}"]["post"]["requestBody"]
        content = body["content"]["application/json"]
        assert content["schema"] == {"$ref": f"#/components/schemas/{model.__name__}"}
        for example in content["examples"].values():
            model.model_validate(example["value"])
