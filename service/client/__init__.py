"""The Python client of Assay's REST API.

from assay.service.client import AssayClient

with AssayClient("http://127.0.0.1:8000") as client:
job = client.wait(client.submit(spec).id)
results = client.results(job.id)
"""

from assay.service.client.asynchronous import AsyncAssayClient
from assay.service.client.jobs import AssayClient
from assay.service.client.transport import DEFAULT_URL, ERRORS, KEY_VARIABLE, BadAnswer, Unreachable

__all__ = [
    "DEFAULT_URL",
    "ERRORS",
    "KEY_VARIABLE",
    "AssayClient",
    "AsyncAssayClient",
    "BadAnswer",
    "Unreachable",
]
