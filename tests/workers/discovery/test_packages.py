"""Components of installed packages: found by entry points, described, refused, resolved."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.service.catalog import extra_components
from assay.service.catalog.catalog import Catalog, load, load_with
from assay.service.catalog.component import Component
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.discovery import packages
from assay.workers.jobs.failures import describe
from tests.support.packages import install

Write = Callable[..., None]
PROBE = '''
__all__ = ["{name}"]

TABLE = "attack"
THREAT = {{"knowledge": "noise"}}


def {name}(*, steps: int = 3):
    """A probe."""
    return steps
'''
MODEL = '''
__all__ = ["net"]


def net(classes=0, channels=0, *, steps: int = 3):
    """A network."""
    return steps
'''
INVERT = '''
from assay.attacks.corruptions.imaging.corruption import Corruption, Severity

__all__ = ["invert"]


def invert(*, severity: Severity = 1) -> Corruption:
    """The negative."""
    return Corruption("invert", severity, lambda levels: 255 - levels)
'''
SOFTMAX = '''
__all__ = ["Other"]


class Other:
    """Another."""

    name = "other"

    def __init__(self, dim, heads):
        pass
'''


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Installs a package with one entry point into a folder of sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = set()

    def write(name: str, version: str = "1.0", **files: str) -> None:
        names.add(name)
        install(tmp_path, name, version, {name: f"{name}.assay"}, **files)
        importlib.invalidate_caches()

    yield write
    for module in [module for module in sys.modules if module.partition(".")[0] in names]:
        del sys.modules[module]


def walked() -> tuple[dict[tuple[str, str], Component], dict[str, str]]:
    found, left_out = packages.components_of(load_with("").list(), packages.installed())
    return {(component.kind, component.name): component for component in found}, left_out


def probe(name: str = "probe") -> str:
    return PROBE.format(name=name)


def test_modules_and_packages_called_after_kinds_have_components(write: Write) -> None:
    write("ext_one", assay__attack__a=probe("a"), assay__attention=SOFTMAX, assay__helpers=probe("helper"))
    found, left_out = walked()
    assert left_out == {}
    assert set(found) == {("attack", "a"), ("attention", "other")}
    one = found["attack", "a"]
    assert (one.target, str(one.package)) == ("ext_one.assay.attack.a:a", "ext_one 1.0")
    assert one.protocols == ["pixel", "paper"]


def test_presets_are_components_too(write: Write) -> None:
    source = MODEL + (
        "\n\nfrom assay.models.layers.presets import Preset\n"
        'PRESETS = {"net_tiny": Preset(net, "Tiny.", {"steps": 5}),\n'
        '           "net_base": Preset(net, "Base.", {"steps": 9})}\n'
    )
    write("ext_sizes", assay__model__net=source)
    found, left_out = walked()
    assert left_out == {}
    assert set(found) == {("model", "net"), ("model", "net_tiny"), ("model", "net_base")}
    assert {name: catalog.resolve(found["model", name])() for name in ("net", "net_tiny", "net_base")} == {
        "net": 3,
        "net_tiny": 5,
        "net_base": 9,
    }


def test_nothing_is_installed_here() -> None:
    assert packages.installed() == [], "else the tests of the committed catalog would not be about it alone"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"assay__attack": "raise RuntimeError('no GPU')"}, None),
        ({"assay__attack": '__all__ = ["x"]\nraise RuntimeError("no GPU")'}, "RuntimeError: no GPU"),
        ({"assay__attack": '__all__ = ["x"]\nimport nothing_like_it'}, "ModuleNotFoundError"),
        ({"assay__attack": '__all__ = ["x"]\nimport sys; sys.exit(4)'}, "cannot be imported: SystemExit: 4"),
        ({"assay__attack": "__all__ = ["}, "SyntaxError"),
        ({"assay__attack": '__all__ = ["x"]'}, "is in __all__, but not a function"),
        ({"assay__attack": '__all__ = ["x"]\ndef x(): pass'}, "has no docstring"),
        ({"assay__attacks": PROBE.format(name="x")}, "called after a kind (attack, attention"),
        ({"assay__attack": PROBE.format(name="pgd")}, "has the name of an attack of Assay itself"),
        ({"assay__attack": PROBE.format(name="clean")}, "has the name of an evaluation of Assay itself"),
        (
            {"assay__attack__a": PROBE.format(name="x"), "assay__attack__b": PROBE.format(name="x")},
            "has the name of an attack of ext_bad 1.0",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_leaves_out_that_package_alone(
    write: Write, files: dict[str, str], reason: str | None
) -> None:
    write("ext_bad", **files)
    write("ext_good", assay__attack=probe("good"))
    found, left_out = walked()
    assert set(found) == {("attack", "good")}
    assert set(left_out) == {"ext_bad 1.0"}
    assert "ext_bad" in left_out["ext_bad 1.0"]
    assert (reason or "has no components") in left_out["ext_bad 1.0"]


def test_the_first_of_two_packages_keeps_a_name(write: Write) -> None:
    write("ext_a", assay__attack=probe("same"))
    write("ext_b", assay__attack=probe("same"))
    found, left_out = walked()
    assert str(found["attack", "same"].package) == "ext_a 1.0"
    assert (
        "has the name of an attack of ext_a 1.0 (ext_a.assay.attack:same): rename it" in left_out["ext_b 1.0"]
    )


def test_a_corruption_of_a_package_can_be_named_and_the_provenance_has_the_package(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("ext_one", assay__corruption=INVERT)
    path = tmp_path / "extra.json"
    assert catalog.main(["--out", str(path)]) == 0
    monkeypatch.setenv("ASSAY_CATALOG", str(path))
    params = {"corruptions": ["invert", "fog"], "severities": [1], "as_files": False}
    body = {
        "kind": "evaluate",
        "model": {"name": "vit"},
        "data": {"name": "digits"},
        "evaluations": [{"name": "corruptions", "params": params}],
    }
    spec = validate(load(), body).spec
    assert spec["evaluations"][0]["params"]["corruptions"] == ["invert", "fog"]
    assert packages.packages_of(spec, load()) == {"ext_one": "1.0"}
    made = catalog.build("evaluation", "corruptions", params)()
    assert [kernel.name for kernel in made.kernels] == ["invert", "fog"]
    image = torch.rand(1, 1, 8, 8).mul(255).round() / 255
    torch.testing.assert_close(made.kernels[0](image, ["a"], 0), 1 - image)


@pytest.fixture
def file(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a package with an attack, named to this process."""
    write("ext_one", assay__attack=probe())
    path = tmp_path / "extra.json"
    assert catalog.main(["--out", str(path)]) == 0
    monkeypatch.setenv("ASSAY_CATALOG", str(path))
    return path


def test_the_catalog_has_the_components_of_the_file(file: Path) -> None:
    found = load().find("attack", "probe")
    assert str(found.package) == "ext_one 1.0"
    assert catalog.build("attack", "probe", {"steps": 5})() == 5
    spec = {
        "kind": "evaluate",
        "model": {"name": "vit", "params": {}},
        "data": {"name": "digits", "params": {}},
        "evaluations": [
            {"name": "probe", "params": {}, "data": None},
            {"name": "pgd", "params": {}, "data": None},
        ],
    }
    assert packages.packages_of(spec, load()) == {"ext_one": "1.0"}
    assert load().digest != load_with("").digest == load_with("").digest


def test_nested_components_count_among_the_packages(write: Write) -> None:
    write("ext_one", assay__attention=SOFTMAX)
    found, _ = walked()
    both = Catalog([*load_with("").list(), *found.values()])
    model = {"name": "vit", "params": {"attention": {"name": "other", "params": {}}}}
    spec = {
        "kind": "evaluate",
        "model": model,
        "data": {"name": "digits", "params": {}},
        "evaluations": [],
    }
    assert packages.packages_of(spec, both) == {"ext_one": "1.0"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": "2.0"}, "has ext_one 2.0: install ext_one==1.0 there"),
        ({"assay__attack": PROBE.format(name="probe").replace("3", "4")}, "it is not as the catalog says"),
        ({"assay__attack": PROBE.format(name="gone")}, "it is not as the catalog says"),
        ({"assay__attack": '__all__ = ["probe"]\nimport nothing_like_it'}, "ModuleNotFoundError"),
    ],
)  # fmt: skip
def test_a_worker_whose_package_differs_says_so(
    write: Write, file: Path, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    for metadata in tmp_path.glob("*.dist-info"):
        metadata.rename(tmp_path / f"{metadata.name}.old")
    write("ext_one", **{"assay__attack": probe(), **change})
    for module in [module for module in sys.modules if module.startswith("ext_one")]:
        del sys.modules[module]
    with pytest.raises(packages.ComponentMissing) as caught:
        catalog.build("attack", "probe", {})
    assert reason in str(caught.value)
    assert describe(caught.value) == {
        "error_type": "component_missing",
        "message": str(caught.value),
        "retry": False,
    }


def test_a_worker_without_the_package_says_so(file: Path, tmp_path: Path) -> None:
    for metadata in tmp_path.glob("*.dist-info"):
        metadata.rename(tmp_path / f"{metadata.name}.old")
    with pytest.raises(
        packages.ComponentMissing, match=r"the package ext_one 1\.0, which the worker \S+ does not have"
    ):
        catalog.build("attack", "probe", {})


def test_a_target_outside_the_entry_points_is_never_imported(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(file.read_text())
    content["components"][0]["target"] = "subprocess:run"
    other = file.with_name("other.json")
    other.write_text(json.dumps(content))
    monkeypatch.setenv("ASSAY_CATALOG", str(other))
    with pytest.raises(packages.ComponentMissing, match="'subprocess' is in none of the packages"):
        catalog.build("attack", "probe", {})


def test_a_worker_without_the_file_says_what_to_do() -> None:
    with pytest.raises(Exception, match="there is no evaluation or attack 'probe'") as caught:
        catalog.build("evaluation", "probe", {})
    failure = describe(caught.value)
    assert failure["error_type"] == "component_missing"
    assert "ASSAY_CATALOG the same file" in failure["message"]


def test_out_refuses_a_broken_package_unless_told_to_skip_it(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("ext_bad", assay__attack='__all__ = ["x"]')
    write("ext_good", assay__attack=probe())
    path = tmp_path / "extra.json"
    assert catalog.main(["--out", str(path)]) == 1
    assert not path.exists()
    assert (
        "catalog: ext_bad 1.0 is left out: ext_bad.assay: ext_bad.assay.attack.x is in __all__"
        in capsys.readouterr().err
    )
    assert catalog.main(["--out", str(path), "--skip-broken"]) == 0
    assert list(extra_components.read(path).left_out) == ["ext_bad 1.0"]
    assert [entry["name"] for entry in extra_components.read(path).components] == ["probe"]
    assert catalog.main(["--out", str(tmp_path / "none" / "extra.json"), "--skip-broken"]) == 1


def test_embedded_says_where_it_found_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ASSAY_CATALOG", raising=False)
    packages.extend_catalog(tmp_path)
    assert list(tmp_path.iterdir()) == []
    found = [packages.PackageEntry(packages.Package(name="gone", version="1"), "gone")]
    monkeypatch.setattr(packages, "installed", lambda: found)
    monkeypatch.setattr(packages.sys, "executable", "/bin/false")
    packages.extend_catalog(tmp_path)
    assert "serving without the components of other packages" in caplog.text
    assert "ended with code 1" in caplog.text
    assert load() is load_with("")


def failing(**changes: Any) -> str:
    return json.dumps({"components": [], "left_out": {}} | changes)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read"),
        ("{", "is no catalog of components"),
        ("[]", "is no catalog of components"),
        (failing(components=[{"name": "x", "package": None}]), "is no catalog of components"),
        (failing(left_out={"a": 1}), "is no catalog of components"),
        (failing(components=[{"name": "x", "package": {"name": "p", "version": "1"}}]), "the entry 'x': "),
    ],
)
def test_a_file_that_cannot_be_used_says_how_to_write_it(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "extra.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(extra_components.BadPackageComponents) as caught:
        load_with(str(path))
    assert reason in str(caught.value)
    assert f"python -P -m assay.workers.catalog --out {path}" in str(caught.value)


def test_a_name_that_assay_has_taken_since_is_refused(file: Path) -> None:
    content = json.loads(file.read_text())
    content["components"][0]["name"] = "fgsm"
    other = file.with_name("other.json")
    other.write_text(json.dumps(content))
    with pytest.raises(
        extra_components.BadPackageComponents,
        match=r"has the name of an attack of Assay itself .*: rename it",
    ):
        load_with(str(other))
