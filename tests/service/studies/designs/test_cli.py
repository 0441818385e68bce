"""`assay studies register`, `designs`, and `run` of a registered design."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.service.studies.test_cli import assay, working  # noqa: F401 (fixtures)


def test_a_study_is_registered_and_run_by_digest_and_by_file(assay: Any) -> None:  # noqa: F811
    code, out, err = assay("study", "register", "a.study.json")
    digest = out.strip()
    assert (code, digest[:7], len(digest)) == (0, "sha256:", 71)
    assert f"run it with: assay studies run {digest}" in err
    raw = assay("studies", "designs", digest)[1]
    assert hashlib.sha256(raw.encode()).hexdigest() == digest[7:]
    assert digest in assay("studies", "designs")[1]
    assert json.loads(assay("studies", "designs", digest, "--json")[1])["digest"] == digest[7:]
    for file in (digest, "a.study.json"):
        code, study, err = assay("studies", "run", file, "--no-wait")
        assert code == 0
        assert "design fixed before the first run: registered at " in err
        assert digest in assay("studies", "show", study.strip())[1]
    assert "study 2 of the design" in err
    assert "409" not in assay("studies", "delete", digest)[2]


def test_another_study_is_refused(assay: Any) -> None:  # noqa: F811
    digest = assay("studies", "register", "a.study.json")[1].strip()
    spec = json.loads(Path("a.study.json").read_text())
    Path("b.study.json").write_text(json.dumps(spec | {"adjust": "benjamini_hochberg"}))
    code, _, err = assay("studies", "run", "b.study.json", "--design", digest)
    assert code != 0
    assert "adjust" in err
    assert "differs from the registered design" in err
    code, _, err = assay("studies", "run", digest, "--seeds", "2")
    assert code != 0
    assert "a registered design runs as it is" in err
    assert assay("studies", "delete", digest)[0] == 0
    assert assay("studies", "run", digest)[0] != 0


def test_what_had_begun_is_told_at_once(assay: Any, working: Any) -> None:  # noqa: F811
    assert assay("studies", "run", "a.study.json")[0] == 0
    err = assay("studies", "register", "a.study.json")[2]
    assert "fixed after the first run: runs had begun before: arm 'narrow', seed 0" in err
