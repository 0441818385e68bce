"""The site of the documentation: generated pages have all there is, lists and links are as on GitHub."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from assay.service.catalog.catalog import KINDS, load
from assay.service.cli.main import build_parser
from assay.service.client import ERRORS
from assay.service.contract.warning_codes import WarningCode
from assay.service.settings import Settings
from assay.workers.settings import WorkerSettings
from supply.site import (
    catalog_pages,
    command_page,
    errors_page,
    hooks,
    rest_pages,
    settings_page,
    warnings_page,
)
from supply.site.markdown import cell, for_python_markdown, table

ROOT = Path(__file__).resolve().parents[2]


def test_the_catalog_has_a_section_for_every_component_with_every_parameter() -> None:
    assert catalog_pages.KINDS.keys() == set(KINDS)
    pages = catalog_pages.pages()
    for kind, (name, _, _) in catalog_pages.KINDS.items():
        sections = re.split(r"^## \S+ \{ #(\S+) \}$", pages[name], flags=re.MULTILINE)[1:]
        found = dict(zip(sections[::2], sections[1::2], strict=True))
        assert found.keys() == {one.name for one in load().list(kind)}
        for one in load().list(kind):
            assert all(f"| `{parameter}` |" in found[one.name] for parameter in one.parameters["properties"])
            assert one.formula is None or one.formula in found[one.name]
    assert '| `epsilon` | `"1/255"` |' in pages["attacks"], "radii are fractions, as people write them"


def test_every_call_of_the_service_has_a_section_with_its_errors() -> None:
    text = "\n".join(rest_pages.pages().values())
    assert set(rest_pages.titles()) == set(rest_pages.pages())
    for path, methods in rest_pages.document()["paths"].items():
        for method, operation in methods.items():
            assert f"{{ #{operation['operationId']} }}" in text
            assert f"```http\n{method.upper()} {path}\n```" in text
    for name in rest_pages.document()["components"]["schemas"]:
        assert f"## {name} {{ #{name.lower()} }}" in text
    assert "invalid\\_spec" not in text
    assert "`invalid_spec`: At least one field is wrong" in text


def test_links_between_the_rest_pages_lead_to_sections() -> None:
    pages = {**rest_pages.pages(), "index": rest_pages.overview()}
    for text in pages.values():
        for name, anchor in re.findall(r"\]\(([\w-]+)\.md#([\w-]+)\)", text):
            assert f"{{ #{anchor} }}" in pages[name]


def test_every_subcommand_and_option_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_URL", "http://somewhere:1")
    page = command_page.page()
    assert "somewhere" not in page, "the page is of the code, not of this machine"
    names = [action.dest for actions in build_parser().topics().values() for action in actions]
    assert len(names) > 30
    assert all(f"## assay {name} {{ #assay-{name} }}" in page for name in names)
    assert all(f"[`assay {name}`](#assay-{name})" in page for name in names)
    assert "### assay keys create { #assay-keys-create }" in page
    assert "| `--expires-days EXPIRES_DAYS` |  | days until it expires (default: never) |" in page


def test_every_setting_has_a_line_and_a_meaning() -> None:
    page = settings_page.page()
    for settings in (Settings, WorkerSettings):
        for name in settings.model_fields:
            [line] = re.findall(rf"^\| `ASSAY_{name.upper()}` \|.*$", page, re.MULTILINE)
            assert re.search(r"\| [^|]*\w[^|]* \|$", line), f"{name} has no description"


def test_every_error_has_a_line() -> None:
    page = errors_page.page()
    assert all(f"| {one.status} | `{name}` | `{one.__name__}` | " in page for name, one in ERRORS.items())


def test_lists_are_indented_by_four_and_follow_an_empty_line() -> None:
    text = "Read:\n- one\n  more\n  - two\n\n    ```sh\n    - x\n    ```\n\n1. three\n\n   four\n\nend\n"
    wanted = (
        "Read:\n\n- one\n    more\n    - two\n\n        ```sh\n        - x\n        ```\n\n"
        "1. three\n\n    four\n\nend\n"
    )
    assert for_python_markdown(text) == wanted
    fenced = "```yaml\na:\n- one\n  - two\n```\n"
    assert for_python_markdown(fenced) == fenced


def test_cells_show_what_was_written() -> None:
    assert cell("a | b <c> *d* `e|f`") == r"a \| b \<c> \*d\* `e\|f`"
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_what_another_host_would_send_is_found() -> None:
    for text in (
        '<script src="https://cdn.example/x.js">',
        "<img src=//cdn.example/x.png>",
        '<link href="https://fonts.example/x" rel="stylesheet">',
        '<link rel="preconnect" href="https://fonts.example">',
    ):
        assert hooks.REMOTE.search(text), text
    for text in (
        '<a href="https://example.org">',
        '<link rel="canonical" href="https://a">',
        '<img src="a.png">',
    ):
        assert not hooks.REMOTE.search(text), text


@pytest.mark.costly
def test_the_pages_need_no_torch() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'numpy', 'timm']));"
    pages = (
        "from supply.site import hooks, rest_pages, settings_page; rest_pages.pages(); settings_page.page()"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked} {pages}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_warning_has_its_section_and_its_old_anchor() -> None:
    page, anchors = warnings_page.page(), warnings_page.old_anchors()
    for code in get_args(WarningCode):
        assert f"### `{code}` {{ #{code} }}" in page
        assert f'<a id="{code}"></a>[`{code}`](reference/warnings.md#{code})' in anchors
    assert "](attacks.md" not in page
    assert "](../attacks.md#random-models)" in page
