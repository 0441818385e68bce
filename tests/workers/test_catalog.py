"""The walker and the resolver, on packages that the tests write themselves."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.service.catalog.catalog import KINDS, NAME, Catalog
from assay.service.catalog.component import EVALUATIONS
from assay.service.contract.errors import NotFound
from assay.workers import catalog
from assay.workers.discovery.signatures import SYNONYMS
from assay.workers.discovery.walk import PACKAGES, to_json, walk

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = itertools.count()

HEADER = """
from __future__ import annotations
from collections.abc import Callable
from typing import Annotated, Literal
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MinLen, MultipleOf
"""

NOISE = 'THREAT = {"knowledge": "noise"}\n'

Tree = Callable[..., Mapping[str, str]]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Writes a package per kind, {"attack": {"pgd": source}}, and answers kind to package name.

    An attack that states no threat is noise; an attack or evaluation that states no outcome table has one.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(**kinds: Mapping[str, str]) -> Mapping[str, str]:
        packages = {}
        for kind, modules in kinds.items():
            packages[kind] = f"fake{next(NUMBERS)}_{kind}"
            folder = tmp_path / packages[kind]
            folder.mkdir()
            (folder / "__init__.py").write_text("")
            table = 'TABLE = "attack"\n' if kind in EVALUATIONS else ""
            for name, source in modules.items():
                noise = NOISE if kind == "attack" and "THREAT" not in source else ""
                (folder / f"{name}.py").write_text(HEADER + table + source + noise)
        importlib.invalidate_caches()
        return packages

    return write


def attack(signature: str = "", name: str = "probe", extra: str = "") -> str:
    arguments = f"*, {signature}" if signature else ""
    return (
        f'__all__ = ["{name}"]\n{extra}\ndef {name}({arguments}):\n    """An attack.\n\n    More.\n    """\n'
    )


def schema_of(tree: Tree, signature: str, extra: str = "") -> dict[str, Any]:
    [component] = walk(tree(attack={"probe": attack(signature, extra=extra)}))
    return component.parameters


class TestSignatures:
    @pytest.mark.parametrize(
        ("annotation", "default", "schema"),
        [
            ("bool", "True", {"type": "boolean", "default": True}),
            ("int", "3", {"type": "integer", "default": 3}),
            ("float", "1", {"type": "number", "default": 1.0}),
            ("str", "'x'", {"type": "string", "default": "x"}),
            ("Literal['a', 'b']", "'a'", {"enum": ["a", "b"], "default": "a"}),
            ("list[int]", "(1, 2)", {"type": "array", "items": {"type": "integer"}, "default": [1, 2]}),
            ("int | None", "None", {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
            (
                "Annotated[int, Ge(1), Le(9)]",
                "3",
                {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            ),
            (
                "Annotated[float, Interval(gt=0, lt=1)]",
                "0.5",
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.5},
            ),
            ("Annotated[int, MultipleOf(8)]", "64", {"type": "integer", "multipleOf": 8, "default": 64}),
            (
                "Annotated[list[int], Len(1, 3)]",
                "(1,)",
                {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3, "default": [1]},
            ),
            ("Annotated[str, MinLen(2)]", "'ab'", {"type": "string", "minLength": 2, "default": "ab"}),
            (
                "list[Annotated[int, Ge(1)]]",
                "(1,)",
                {"type": "array", "items": {"type": "integer", "minimum": 1}, "default": [1]},
            ),
            (
                "Annotated[int | None, Ge(0)]",
                "None",
                {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
            ),
            (
                "Literal['all', 'first'] | list[int]",
                "'all'",
                {
                    "anyOf": [{"enum": ["all", "first"]}, {"type": "array", "items": {"type": "integer"}}],
                    "default": "all",
                },
            ),
            ("Annotated[str, 'folder']", "'x'", {"type": "string", "folder": True, "default": "x"}),
        ],
    )
    def test_types_and_bounds(
        self, tree: Tree, annotation: str, default: str, schema: dict[str, Any]
    ) -> None:
        found = schema_of(tree, f"value: {annotation} = {default}")
        assert found == {"type": "object", "properties": {"value": schema}, "additionalProperties": False}

    def test_fractions(self, tree: Tree) -> None:
        found = schema_of(
            tree,
            "e: Annotated[float, 'fraction', Ge(0)] = 8 / 255, f: Annotated[float | None, 'fraction'] = None",
        )
        epsilon = found["properties"]["e"]
        assert (epsilon["type"], epsilon["fraction"], epsilon["minimum"]) == (["number", "string"], True, 0)
        assert found["properties"]["f"]["anyOf"][0]["fraction"]

    def test_nested_annotations(self, tree: Tree) -> None:
        found = schema_of(
            tree, "e: Annotated[Fraction, Le(1)] = 1", extra="Fraction = Annotated[float, 'fraction', Ge(0)]"
        )
        assert (found["properties"]["e"]["minimum"], found["properties"]["e"]["maximum"]) == (0, 1)

    def test_without_a_default_it_is_required(self, tree: Tree) -> None:
        assert schema_of(tree, "a: int, b: int = 1")["required"] == ["a"]

    def test_the_system_s_arguments_are_hidden(self, tree: Tree) -> None:
        signature = 'root, split, *, a: int = 1, b: Annotated[object, "system"] = None'
        source = f'__all__ = ["probe"]\ndef probe({signature}):\n    """P."""\n'
        [component] = walk(tree(data={"probe": source}))
        assert list(component.parameters["properties"]) == ["a"]

    def test_a_list_of_components_has_their_names(self, tree: Tree) -> None:
        fog = attack("severity: int = 1", name="fog")
        signature = "value: Annotated[list[str], 'corruption', Len(1, 9)] = ('fog',)"
        [component, _] = walk(tree(attack={"probe": attack(signature)}, corruption={"fog": fog}))
        assert component.parameters["properties"]["value"] == {
            "type": "array",
            "items": {**NAME, "component": "corruption"},
            "minItems": 1,
            "maxItems": 9,
            "default": ["fog"],
        }
        with pytest.raises(ValueError, match="there is no corruption 'fog'"):
            walk(tree(attack={"probe": attack(signature)}))

    @pytest.mark.parametrize("cost", ["0", "-1", "'1'", "True", "float('nan')"])
    def test_a_cost_that_is_no_number_above_0_is_refused(self, tree: Tree, cost: str) -> None:
        source = attack(extra=f'FACTS = {{"milliseconds": {cost}}}')
        with pytest.raises(ValueError, match=r"probe\.probe: FACTS: milliseconds must be a finite number"):
            walk(tree(corruption={"probe": source}))

    @pytest.mark.parametrize("marks", ["'meta.bin'", "[1]", "None"])
    def test_marks_of_data_that_are_no_list_of_paths_are_refused(self, tree: Tree, marks: str) -> None:
        source = attack(extra=f'FACTS = {{"marks": {marks}}}')
        with pytest.raises(ValueError, match=r"probe\.probe: FACTS: marks must be a list of paths"):
            walk(tree(data={"probe": source}))

    def test_the_arithmetic_of_a_recipe_is_one_that_jobs_have(self, tree: Tree) -> None:
        for dtype, stated in (("float16", {"arithmetic": "float16"}), ("half", None)):
            source = attack(extra=f'FACTS = {{"arithmetic": "{dtype}"}}')
            if stated is not None:
                assert walk(tree(recipe={"probe": source}))[0].facts == stated
                continue
            with pytest.raises(ValueError, match=r"arithmetic must be one of float32, .*, not 'half'"):
                walk(tree(recipe={"probe": source}))

    def test_descriptions_come_from_the_docstring(self, tree: Tree) -> None:
        source = (
            '__all__ = ["probe"]\ndef probe(*, a: int = 1, b: int = 2):\n    """P.\n\n    Args:\n'
            "        a: the first,\n            on two lines.\n        b: the second: last.\n\n"
            '    Returns:\n        c: no argument.\n    """\n'
        )
        [component] = walk(tree(attack={"probe": source}))
        notes = {name: part["description"] for name, part in component.parameters["properties"].items()}
        assert notes == {"a": "the first, on two lines.", "b": "the second: last."}

    @pytest.mark.parametrize(
        ("signature", "reason"),
        [
            ("value: dict[str, int] = None", "cannot be expressed"),
            ("value: complex = 1", "cannot be expressed"),
            ("value: Unknown = 1", "cannot be evaluated"),
            ("value=1", "no annotation"),
            ("value: int = 'x'", "default 'x' is refused"),
            ("value: Annotated[int, Ge(1)] = 0", "default 0 is refused"),
            ("value: float = float('nan')", "default nan is refused"),
            ("value: Annotated[str, Ge(1)] = 'x'", "fits none"),
            ("value: Annotated[int, 'fraction'] = 1", "is for a number"),
            ("value: Annotated[int, 'folder'] = 1", "is for a string"),
            ("value: Annotated[int, 'foldr'] = 1", "'foldr' is unknown"),
            ("value: Annotated[list[int], 'corruption'] = ()", "a list of components is Annotated"),
            ("value: Annotated[list[str], 'model:patch_tokens'] = ()", "a list of components is Annotated"),
        ],
    )
    def test_what_cannot_be_expressed_names_module_and_parameter(
        self, tree: Tree, signature: str, reason: str
    ) -> None:
        with pytest.raises(ValueError, match=reason) as caught:
            schema_of(tree, signature)
        assert "_attack.probe.probe: parameter 'value'" in str(caught.value)

    def test_hidden_parameters_are_refused(self, tree: Tree) -> None:
        with pytest.raises(ValueError, match="kwargs hides parameters"):
            schema_of(tree, "a: int = 1, **kwargs: int")

    def test_choices(self, tree: Tree) -> None:
        extra = 'CHOICES = {"a": lambda: ["z", "y", "y"]}'
        assert schema_of(tree, "a: str", extra)["properties"]["a"] == {"type": "string", "enum": ["y", "z"]}
        with pytest.raises(ValueError, match="no parameters"):
            schema_of(tree, "b: str", extra)


class TestWalk:
    def test_an_entry(self, tree: Tree) -> None:
        extra = (
            'RULES = (("params.steps > 1 or data.classes > 2", "too few"),)\nPAPER = "A paper"\n'
            'PASSES = ("params.steps + 1", "params.steps")\n'
        )
        packages = tree(attack={"pgd": attack("steps: int = 20", "pgd", extra)})
        [entry] = json.loads(to_json(walk(packages)))
        schema = {
            "type": "object",
            "properties": {"steps": {"type": "integer", "default": 20, "also": " ".join(SYNONYMS["steps"])}},
            "additionalProperties": False,
        }
        assert entry == {
            "name": "pgd",
            "kind": "attack",
            "target": f"{packages['attack']}.pgd:pgd",
            "summary": "An attack.",
            "schema": schema,
            "rules": [{"expression": "params.steps > 1 or data.classes > 2", "message": "too few"}],
            "tasks": ["classification"],
            "paper": "A paper",
            "passes": {"forward": "params.steps + 1", "backward": "params.steps"},
            "protocols": ["pixel", "paper"],
            "threat": {"knowledge": "noise"},
            "facts": None,
            "table": "attack",
        }
        packages = tree(attack={"pgd": attack(extra='PROTOCOLS = ("pixel",)')})
        assert [entry.protocols for entry in walk(packages)] == [["pixel"]]
        [other] = json.loads(to_json(walk(tree(recipe={"a": attack()}))))
        assert not {"protocols", "threat"} & set(other)

    def test_what_is_rare_is_left_out_where_it_is_empty(self, tree: Tree) -> None:
        extra = 'NEEDS = ("softmax",)\nREPEATS = "params.n"\n'
        [entry] = json.loads(to_json(walk(tree(evaluation={"a": attack("n: int = 1", extra=extra)}))))
        assert (entry["needs"], entry["repeats"], "offers" in entry) == (["softmax"], "params.n", False)
        [entry] = json.loads(to_json(walk(tree(model={"a": attack(extra='OFFERS = ("softmax",)')}))))
        assert (entry["offers"], "needs" in entry, "repeats" in entry) == (["softmax"], False, False)

    def test_a_table_may_be_that_of_each_task(self, tree: Tree) -> None:
        tables = {"classification": "attack", "segmentation": "attacked_segmentation"}
        extra = f'TASKS = ("classification", "segmentation")\nTABLE = {tables}\n'
        [component] = walk(tree(attack={"a": attack(extra=extra)}))
        assert component.table == tables
        assert component.table_for(["segmentation"]) == "attacked_segmentation"
        assert component.table_for(["language"]) is None
        named = component.model_copy(update={"table": "attack"})
        assert named.table_for(["language"]) == "attack"

    def test_only_evaluations_and_attacks_have_outcomes(self, tree: Tree) -> None:
        with pytest.raises(ValueError, match="TABLE: evaluations and attacks have outcomes, no data has"):
            walk(tree(data={"a": attack(extra='TABLE = "attack"')}))

    def test_sorted_and_byte_identical(self, tree: Tree) -> None:
        packages = tree(attack={"b": attack(name="b"), "a": attack(name="z")}, recipe={"c": attack(name="c")})
        text = to_json(walk(packages))
        assert text == to_json(walk(packages))
        assert text.endswith("]\n")
        assert [entry["name"] for entry in json.loads(text)] == ["b", "z", "c"]
        assert json.loads(text)[2]["tasks"] == ["classification"]

    def test_only_what_states_all_is_imported_and_only_once(
        self, tree: Tree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counted = "import builtins\nbuiltins.walked = getattr(builtins, 'walked', 0) + 1\n"
        packages = tree(
            attack={
                "probe": attack(extra=counted),
                "helper": "raise RuntimeError('imported')\n",
                "_private": "1 / 0\n",
            }
        )
        assert [component.name for component in walk(packages)] == ["probe"]
        import builtins

        assert builtins.walked == 1  # type: ignore[attr-defined]
        monkeypatch.delattr(builtins, "walked")

    def test_names_that_a_library_appends_at_run_time_do_not_count(self, tree: Tree) -> None:
        packages = tree(
            attack={"probe": attack(extra="__all__.append('other')\ndef other():\n    '''O.'''\n")}
        )
        assert [component.name for component in walk(packages)] == ["probe"]

    def test_a_name_belongs_to_one_component_of_a_kind(self, tree: Tree) -> None:
        with pytest.raises(
            ValueError, match=r"two components of kind attack are called 'probe': .*a:probe and .*b:probe"
        ):
            walk(tree(attack={"a": attack(), "b": attack()}))
        assert len(walk(tree(attack={"a": attack()}, data={"b": attack()}))) == 2

    def test_no_name_is_an_evaluation_and_an_attack(self, tree: Tree) -> None:
        with pytest.raises(ValueError, match="an evaluation and an attack"):
            walk(tree(attack={"a": attack()}, evaluation={"b": attack()}))

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ('__all__ = ["gone"]\n', "not a function"),
            ('__all__ = ["LIMIT"]\nLIMIT = 3\n', "not a function"),
            ('__all__ = ["Probe"]\ndef Probe():\n    """P."""\n', "lower case"),
            ('__all__ = ["probe"]\ndef probe():\n    pass\n', "no docstring"),
            ('__all__ = ["probe"] + []\ndef probe():\n    """P."""\n', "plain list"),
            (attack("n: int = 1", extra='RULES = (("params.m > 1", "x"),)'), "no parameters"),
            (attack("n: int = 1", extra='RULES = (("params.n ** 2 > 1", "x"),)'), "not allowed"),
            (attack("n: int = 1", extra='PASSES = ("params.m", "0")'), "no parameters"),
            (attack("n: int = 1", extra='PASSES = ("open(1)", "0")'), "not allowed"),
            (attack("n: int = 1", extra='REPEATS = "params.m"'), "REPEATS: .*no parameters"),
            (attack("n: int = 1", extra='FACTS = {"n": 1}'), "parameters too"),
            (attack(extra="PAPER = 3"), "paper: "),
            (attack(extra='PROTOCOLS = ("pixels",)'), "protocols"),
            (attack(extra="PROTOCOLS = ()"), "at least one"),
            (attack(extra="TABLE = None"), "TABLE must name its outcome table"),
            (attack(extra='TABLE = {"segmentation": "attack"}'), r"TABLE must name .* \(classification\)"),
            (attack(extra='TABLE = "attacks"'), "no outcome table 'attacks'; there are anomaly, attack, "),
            (attack(extra='TABLE = "nothing_like_it:TABLE"'), "cannot be imported: ModuleNotFoundError"),
            (attack(extra='TABLE = "math:pi"'), "is no outcome table: it must be an object with name"),
            (
                attack(extra='TABLE = "assay.service.metrics.tables.anomaly:Anomaly"'),
                "is no outcome table: it must be an object",
            ),
        ],
    )
    def test_what_cannot_be_described(self, tree: Tree, source: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason) as caught:
            walk(tree(attack={"probe": source}))
        assert "probe" in str(caught.value)

    @pytest.mark.parametrize(
        ("stated", "reason"),
        [
            ("None", r"states no THREAT; .*white_box.*knowledge: noise, black_box, white_box, transfer"),
            ("'white_box'", "states THREAT = 'white_box'; every attack states one"),
            ("{'knowlege': 'noise'}", r"has \['knowlege'\], allowed are knowledge, .*mean 'knowledge'"),
            ("{'search': 'iterative'}", r"THREAT\.knowledge: is missing \(knowledge: noise, "),
            ("{'knowledge': 'grey_box'}", r"THREAT\.knowledge: .*'black_box'.*, not 'grey_box'"),
            ("{'knowledge': 'white_box'}", "noise states no search, every other attack one"),
            ("{'knowledge': 'noise', 'search': 'iterative'}", "noise states no search"),
            ("{'knowledge': 'noise', 'norm': 'L9'}", r"THREAT\.norm: .*'Linf'.*, not 'L9'"),
            ("{'knowledge': 'noise', 'weak': 'yes'}", r"THREAT\.weak: must be true or false, not 'yes'"),
            ("{'knowledge': 'noise', 'needs_classes': 0}", r"THREAT\.needs_classes: .*not 0"),
            ("{'knowledge': 'noise', 'mean_loss_in': ['torch']}", r"\['torch'\], the attack has a, b"),
            (
                "{'knowledge': 'noise', 'batch_draws': {'c': 'True'}}",
                r"backends \['c'\], the attack has a, b",
            ),
            (
                "{'knowledge': 'noise', 'batch_draws': {'a': 'import os'}}",
                r"batch_draws\.a: .*cannot be parsed",
            ),
            ("{'knowledge': 'noise', 'batch_draws': {'a': 'params.n > 1'}}", r"names \['params\.n'\]"),
        ],
    )
    def test_threats_that_are_refused(self, tree: Tree, stated: str, reason: str) -> None:
        source = attack('backend: Literal["a", "b"] = "a"', extra=f"THREAT = {stated}")
        with pytest.raises(ValueError, match=rf"\.probe\.probe.*{reason}"):
            walk(tree(attack={"probe": source}))

    def test_only_attacks_state_a_threat_and_a_module_of_several_one_each(self, tree: Tree) -> None:
        with pytest.raises(ValueError, match="only attacks state one, this is of kind recipe"):
            walk(tree(recipe={"probe": attack(extra=NOISE)}))
        white = {"knowledge": "white_box", "search": "iterative"}
        both = f'THREAT = {{"big": {white}, "small": {{"knowledge": "noise"}}}}\n'
        source = '__all__ = ["big", "small"]\ndef big():\n    """B."""\ndef small():\n    """S."""\n'
        big, small = json.loads(to_json(walk(tree(attack={"probe": source + both}))))
        assert (big["threat"], small["threat"]) == (white, {"knowledge": "noise"})
        with pytest.raises(ValueError, match=r"probe\.small states no THREAT"):
            walk(tree(attack={"probe": source + f'THREAT = {{"big": {white}}}\n'}))

    def test_rules_go_to_the_components_that_have_the_parameters(self, tree: Tree) -> None:
        source = (
            '__all__ = ["big", "small"]\n'
            'RULES = (("model.n > 1", "n"), ("model.m > model.n", "m"))\nPAPER = {"big": "B", "small": "S"}\n'
            'def big(*, n: int = 2, m: int = 3):\n    """B."""\ndef small(*, n: int = 2):\n    """S."""\n'
        )
        big, small = walk(tree(model={"both": source}))
        assert [rule.message for rule in big.rules] == ["n", "m"]
        assert [rule.message for rule in small.rules] == ["n"]
        assert (big.paper, small.paper) == ("B", "S")

    def test_suites_name_what_exists(self, tree: Tree) -> None:
        def suite(item: str) -> str:
            return f'__all__ = ["fast"]\ndef fast():\n    """F."""\n    return [{item}]\n'

        attacks = {"probe": attack("n: Annotated[int, Ge(1)] = 1")}
        good = walk(tree(attack=attacks, suite={"fast": suite('{"name": "probe", "params": {"n": 2}}')}))
        assert good[1].evaluations == [{"name": "probe", "params": {"n": 2}}]
        for item in ('{"name": "prob"}', '{"name": "probe", "params": {"n": 0}}', '{"nme": "probe"}', "3"):
            with pytest.raises(ValueError, match=r"fast.fast: (evaluations)?\[0\]"):
                walk(tree(attack=attacks, suite={"fast": suite(item)}))

    def test_default_attention_must_exist(self, tree: Tree) -> None:
        signature = '*, attention: Annotated[Callable, "attention"] = "rcp"'
        source = f'__all__ = ["vit"]\ndef vit({signature}):\n    """V."""\n'
        with pytest.raises(ValueError, match="no attention 'rcp'"):
            walk(tree(model={"vit": source}))

    def test_there_is_a_package_for_every_kind(self) -> None:
        assert set(PACKAGES) == set(KINDS)
        with pytest.raises(ValueError, match="no package"):
            walk({"attack": "no_such_package"})


ATTENTION = """
__all__ = ["RPC"]
class RPC:
    '''Attention.'''
    name = "rpc"
    def __init__(
        self, dim, heads, *, iterations: Annotated[int, Ge(1)] = 4, prefix: Annotated[int, "system"] = 0
    ):
        self.made = (dim, heads, iterations, prefix)
"""
MODEL = """
__all__ = ["vit"]
RULES = (
    ("model.width % model.heads == 0", "heads must divide width"),
    ("model.width > data.classes", "narrow"),
    ("model.width <= data.size", "wider than the images"),
)
def vit(
    classes, channels, *, width: int = 8, heads: int = 2, attention: Annotated[Callable, "attention"] = "rpc"
):
    '''Model.'''
    return attention(width, heads, prefix=classes)
"""
PGD = """
__all__ = ["pgd"]
RULES = (("params.epsilon < data.limit", "epsilon too large"),)
PASSES = ("params.steps + params.epsilon", "params.steps")
def pgd(*, epsilon: Annotated[float, "fraction"] = 0.1, steps: int = 1):
    '''Attack.'''
    return (epsilon, steps)
"""


class TestResolve:
    @pytest.fixture
    def fake(self, tree: Tree) -> Catalog:
        packages = tree(
            attention={"rpc": ATTENTION},
            model={"vit": MODEL},
            attack={"pgd": PGD},
            data={
                "a": '__all__ = ["a"]\nFACTS = {"limit": 0.5}\ndef a(root, split):\n    """A."""\n',
                "b": '__all__ = ["b"]\ndef b(root, split):\n    """B."""\n',
            },
            evaluation={"clean": '__all__ = ["clean"]\ndef clean():\n    """C."""\n'},
        )
        return Catalog.from_json(to_json(walk(packages)))

    def test_fractions_are_bound_as_floats_with_defaults(self, fake: Catalog) -> None:
        assert catalog.build("attack", "pgd", {"epsilon": "51/255"}, catalog=fake)() == (0.2, 1)
        assert catalog.build("evaluation", "pgd", {}, catalog=fake)() == (0.1, 1)

    def test_attention_is_bound_to_a_factory(self, fake: Catalog) -> None:
        params = {"width": 12, "attention": {"name": "rpc", "params": {"iterations": 2}}}
        assert catalog.build("model", "vit", params, catalog=fake)(10, 3).made == (12, 2, 2, 10)
        assert catalog.build("model", "vit", {}, catalog=fake)(10, 3).made == (8, 2, 4, 10)

    def test_parameters_are_checked_again(self, fake: Catalog) -> None:
        with pytest.raises(
            ValueError, match=r"params.epsilonn: unknown parameter; params.steps: must be an integer"
        ):
            catalog.build("attack", "pgd", {"epsilonn": 1, "steps": "x"}, catalog=fake)
        attention = {"name": "rpc", "params": {"iterations": 0}}
        with pytest.raises(ValueError, match=r"params.attention.params.iterations"):
            catalog.build("model", "vit", {"attention": attention}, catalog=fake)
        with pytest.raises(NotFound):
            catalog.build("attack", "fgsm", {}, catalog=fake)

    def test_what_the_system_sets_is_no_parameter(self, fake: Catalog) -> None:
        with pytest.raises(ValueError, match="unknown parameter"):
            catalog.build("attention", "rpc", {"prefix": 1}, catalog=fake)

    def test_passes(self, fake: Catalog) -> None:
        assert catalog.passes("pgd", {"epsilon": "1/2", "steps": 3}, catalog=fake) == (3.5, 3)
        assert catalog.passes("clean", {}, catalog=fake).forward == 1
        assert catalog.passes("clean", {}, catalog=fake).backward == 0

    def test_rules_are_checked_with_the_data_s_facts(self, fake: Catalog) -> None:
        spec: dict[str, Any] = {
            "kind": "evaluate",
            "protocol": "pixel",
            "model": {
                "name": "vit",
                "params": {"width": 8, "heads": 2, "attention": {"name": "rpc", "params": {"iterations": 4}}},
            },
            "data": {"name": "b", "params": {}},
            "evaluations": [
                {"name": "pgd", "params": {"epsilon": "3/4", "steps": 1}, "data": None},
                {"name": "pgd", "params": {"epsilon": 0.4, "steps": 1}, "data": {"name": "a", "params": {}}},
            ],
        }
        catalog.check_rules(spec, SimpleNamespace(classes=3, channels=1, size=(8, 8)), catalog=fake)
        with pytest.raises(
            ValueError, match=r"model.params: narrow \(the data's classes is 10, width is 8\)"
        ):
            catalog.check_rules(spec, SimpleNamespace(classes=10, channels=1, size=None), catalog=fake)
        with pytest.raises(ValueError, match="wider than the images"):
            catalog.check_rules(spec, SimpleNamespace(classes=3, channels=1, size=(7, 7)), catalog=fake)
        spec["evaluations"][1]["params"]["epsilon"] = "3/4"
        spec["model"]["params"]["heads"] = 3
        with pytest.raises(
            ValueError, match=r"heads must divide width.*evaluations\[1\].params: epsilon too large"
        ):
            catalog.check_rules(spec, None, catalog=fake)


class TestCommand:
    @pytest.fixture
    def written(self, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        packages = tree(attack={"probe": attack("n: int = 1")})
        path = tmp_path / "catalog.json"
        monkeypatch.setattr(catalog, "CATALOG_FILE", path)
        monkeypatch.setattr(catalog, "walk", lambda: walk(packages))
        return path

    def test_writes_and_checks(self, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert catalog.main(["--check"]) == 1
        assert not written.exists()
        assert "stale (attack probe)" in capsys.readouterr().err
        assert catalog.main([]) == 0
        assert catalog.main(["--check"]) == 0
        assert Catalog.from_json(written.read_text()).find("attack", "probe").name == "probe"
        written.write_text(written.read_text().replace("An attack.", "An  attack."))
        assert catalog.main(["--check"]) == 1
        assert catalog.main([]) == 0
        assert catalog.main(["--check"]) == 0

    def test_a_component_that_cannot_be_described(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fails() -> None:
            raise ValueError("x.y: parameter 'z'")

        monkeypatch.setattr(catalog, "walk", fails)
        assert catalog.main([]) == 1
        assert "parameter 'z'" in capsys.readouterr().err


def test_importing_the_resolver_is_light() -> None:
    heavy = {"torch", "numpy", "fastapi", "sqlalchemy"}
    program = f"import sys, workers.catalog; print(sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
