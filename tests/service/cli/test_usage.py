"""Wrong usage is one line, which says what to write."""

from __future__ import annotations

import pytest

from assay.service.cli import main


def refused(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of a line that is wrong usage."""
    with pytest.raises(SystemExit) as stop:
        main.main(line.split())
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.strip()


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("--profile dead jobs", "assay jobs --profile dead"),
        ("--url http://127.0.0.1:1 jobs --json", "assay jobs --json --url http://127.0.0.1:1"),
        ("--json jobs", "assay jobs --json"),
        ("--profile jobs jobs", "assay jobs --profile jobs"),
        ("--profile=dead webhooks list", "assay webhooks list --profile=dead"),
        ("--profile dead", "assay VERB --profile dead"),
    ],
)
def test_options_before_the_subcommand(line: str, right: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(line, capsys)
    assert error.startswith(f"assay: error: options go after the verb: {right};")


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("jobs --foo", "assay jobs: error: unrecognized arguments: --foo; `assay jobs --help`"),
        ("jobs --jsn", "assay jobs: error: unrecognized arguments: --jsn; did you mean '--json'? `assay"),
        ("status a b", "assay status: error: unrecognized arguments: b; `assay status --help`"),
        (
            "studies show a --x=1",
            "assay studies show: error: unrecognized arguments: --x=1; `assay studies show",
        ),
    ],
)
def test_an_unknown_option_names_the_help_of_its_subcommand(
    line: str, rest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(line, capsys).startswith(rest)


@pytest.mark.parametrize("group", ["webhooks", "workers", "keys", "tenants", "checkpoints", "studies"])
def test_a_group_with_a_list_lists(group: str) -> None:
    parser = main.build_parser()
    short, whole = (parser.parse_args(line.split()) for line in (f"{group} --json", f"{group} list --json"))
    assert short.run is whole.run
    assert (short.json, short.url) == (True, None)
    assert parser.parse_args([group, "--url", "http://a", "list"]).url == "http://a", "it is kept"
