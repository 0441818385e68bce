"""Fuzz of every operator that programs may call, in children whose tensors have guarded memory.

    python -m tests.fuzz.operators [--seconds 600] [--seed N] [--calls 6] [--only add.Tensor ...]
    python -m tests.fuzz.operators --examples 500 [--seed N]

The second draws its calls by hypothesis, which makes a failing one as small as it can.

A call counts as valid when it returns results. It fails when it ends the process, takes more than
CPU_SECONDS, writes beyond a tensor, or has results that depend on uninitialised memory or on memory beyond a
tensor.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GUARD = Path(__file__).with_name("guard.c")
CPU_SECONDS = 8.0
MEMORY = 2**29
HEAP = 2**31
POISONS = (0xA7, 0x18)
GROUP = 200
RIGHT_ATTEMPTS = 40
# Refused in every call, with a message of its own: it always normalises by the batch.
REFUSED = frozenset({"_native_batch_norm_legit.no_stats"})


@dataclass
class Count:
    """What was tried of one overload."""

    calls: int = 0
    valid: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def build_guard(folder: Path) -> Path | None:
    """The guarding allocator as a library in the folder; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "guard.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(GUARD), "-ldl"]
    subprocess.run(command, check=True)
    return library


def _guard() -> Any:
    """The functions of the preloaded library; None without it."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "guard_start"):
        return None
    library.guard_start.argtypes = [ctypes.c_size_t]
    return library


class Child:
    """Makes calls in forked processes, and says how these ended."""

    def __init__(self) -> None:
        self._guard = _guard()

    def run(self, jobs: Sequence[Any], handle: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """Reports (number of the job, report) of `handle(job)`, each made in a forked process."""
        at = 0
        while at < len(jobs):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                self._work(jobs, at, handle, write)
            os.close(write)
            begun = at
            with os.fdopen(read) as lines:
                for line in lines:
                    report = json.loads(line)
                    if report.get("begun"):
                        begun = report["job"]
                    else:
                        at = report["job"] + 1
                        yield report["job"], report
            _, status = os.waitpid(pid, 0)
            if status == 0 and at >= len(jobs):
                return
            how = (
                signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status >> 8}"
            )
            yield begun, {"job": begun, "died": how}
            at = begun + 1

    def _work(self, jobs: Sequence[Any], at: int, handle: Any, write: int) -> None:
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_DATA, (used + HEAP, used + HEAP))
            if self._guard is not None:
                self._guard.guard_start(MEMORY)
            for number in range(at, len(jobs)):
                os.write(write, json.dumps({"begun": True, "job": number}).encode() + b"\n")
                signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                report = handle(jobs[number], self._guard)
                signal.setitimer(signal.ITIMER_PROF, 0)
                os.write(write, json.dumps({"job": number, **report}).encode() + b"\n")
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(3)
        os._exit(0)


def make_call(call: Any, guard: Any) -> dict[str, Any]:
    """Make a call with each poison; whether it is valid, and what is wrong with its results."""
    from assay.models.programs.operators import RANDOM
    from tests.fuzz.calls import run_with_outputs

    answers = []
    for poison in POISONS:
        if guard is not None:
            guard.guard_poison(poison)
        try:
            call, results = run_with_outputs(call)
            answers.append([_content(result) for result in results])
            del results
        except Exception as error:  # torch's, of any kind
            answers.append(f"{type(error).__name__}: {error}"[:200])
            if answers[0] != answers[-1]:
                break
            if len(answers) == 1:
                return {"error": answers[0]}
    name = call.target.split(".")[3].removesuffix("_")
    first, second = answers
    if isinstance(first, str) or isinstance(second, str):
        return {"wrong": f"once {first if isinstance(first, str) else 'results'}, then {second}"}
    random_draws = name in RANDOM or "dropout" in name
    if not random_draws and first != second:
        places = [n for n, (one, two) in enumerate(zip(first, second, strict=True)) if one != two]
        return {"wrong": f"results {places} depend on uninitialised memory"}
    return {"valid": True}


def _content(result: Any) -> Any:
    import torch

    if not isinstance(result, torch.Tensor):
        return result
    result = result.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(result.flatten().view(torch.uint8).numpy()) if result.numel() else b""


def _draw(name: str, seed: str) -> Any:
    from tests.fuzz.calls import Drawing
    from tests.fuzz.seeds import seeds

    operator = _BY_NAME[name]
    known = seeds(name, [argument.name for argument in operator._schema.arguments])
    drawing = Drawing(operator, known, random.Random(seed))
    return drawing.right() if ":" in seed else drawing.call()


_BY_NAME: dict[str, Any] = {}


def _handle(job: tuple[str, str], guard: Any) -> dict[str, Any]:
    name, seed = job
    if not seed.endswith("/0"):
        return make_call(_draw(name, seed), guard)
    # The first is to be a valid one.
    report: dict[str, Any] = {}
    for attempt in range(RIGHT_ATTEMPTS):
        report = make_call(_draw(name, f"{attempt}:{seed}"), guard)
        if "valid" in report or "wrong" in report:
            break
    return report


def fuzz(names: Sequence[str], seed: int, calls: int, begin: int = 0) -> dict[str, Count]:
    """Make so many calls of each overload."""
    counts = {name: Count() for name in names}
    jobs = [(name, f"{seed}/{name}/{n}") for name in names for n in range(begin, begin + calls)]
    for at in range(0, len(jobs), GROUP * calls):
        group = jobs[at : at + GROUP * calls]
        for number, report in Child().run(group, _handle):
            name, source = group[number]
            count = counts[name]
            count.calls += 1
            if "valid" in report:
                count.valid += 1
            elif "error" in report:
                count.errors[report["error"]] = count.errors.get(report["error"], 0) + 1
            else:
                count.failures.append(
                    f"{report.get('died') or report['wrong']}: {_draw(name, source)} [{source}]"
                )
    return counts


def fuzz_by_hypothesis(names: Sequence[str], examples: int, seed: int) -> int:
    """Makes calls that hypothesis draws; 1 after a failure, whose smallest form is printed."""
    from hypothesis import HealthCheck, given, settings, strategies
    from hypothesis import seed as seeded
    from hypothesis.errors import HypothesisException

    from tests.fuzz.calls import Drawing
    from tests.fuzz.seeds import seeds

    made = {"calls": 0, "valid": 0}

    @seeded(seed)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.sampled_from(names), strategies.randoms(use_true_random=False))
    def attempt(name: str, choose: random.Random) -> None:
        operator = _BY_NAME[name]
        known = seeds(name, [argument.name for argument in operator._schema.arguments])
        call = Drawing(operator, known, choose).call()
        ((_, report),) = Child().run([call], make_call)
        made["calls"] += 1
        made["valid"] += "valid" in report
        assert "valid" in report or "error" in report, (
            f"{name}: {report.get('died') or report['wrong']}: {call}"
        )

    try:
        attempt()
    except (AssertionError, HypothesisException) as error:
        print(f"FAILED {error}")
        return 1
    print(f"hypothesis: {made['calls']} calls, {made['valid']} valid, 0 failures")
    return 0


def _prepare() -> None:
    """Load torch once, before the forks."""
    import torch

    from tests.fuzz.calls import name_of, overloads

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _BY_NAME.update({name_of(operator): operator for operator in overloads()})
    for name in ("add.Tensor", "repeat.default", "cumsum.default", "stft.center", "linalg_svd.default"):
        _handle((name, "0/0"), None)  # torch loads what it needs to predict sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for some seconds, or one round; 1 after a failure, or if an overload had no valid call."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--examples", type=int, default=0, help="drawn by hypothesis, in place of rounds")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--unguarded", action="store_true", help="without the checks of guards.py")
    options = parser.parse_args(arguments)
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            library = build_guard(Path(folder))
            environment = dict(os.environ, OMP_NUM_THREADS="1")
            if library is not None:
                environment["LD_PRELOAD"] = str(library)
            command = [sys.executable, "-m", "tests.fuzz.operators", *(arguments or sys.argv[1:])]
            if library is None:
                environment["LD_PRELOAD"] = ""
                print("without a C compiler: memory is not guarded", flush=True)
            return subprocess.run(command, env=environment, check=False).returncode
    _prepare()
    if options.unguarded:
        from assay.models.programs import guards

        guards.GUARDS = {}
    names = [name for name in _BY_NAME if not options.only or name in options.only]
    if options.examples:
        return fuzz_by_hypothesis(names, options.examples, options.seed)
    total = {name: Count() for name in names}
    begun, round_ = time.monotonic(), 0
    while True:
        for name, count in fuzz(names, options.seed, options.calls, round_ * options.calls).items():
            _add(total[name], count)
        round_ += 1
        if time.monotonic() - begun > options.seconds:
            break
    return _tell(total, time.monotonic() - begun, errors=options.errors)


def _add(total: Count, count: Count) -> None:
    total.calls += count.calls
    total.valid += count.valid
    total.failures += count.failures
    for error, times in count.errors.items():
        total.errors[error] = total.errors.get(error, 0) + times


def _tell(total: Mapping[str, Count], seconds: float, *, errors: bool = False) -> int:
    for name, count in total.items():
        for failure in count.failures[:5]:
            print(f"FAILED {name}: {failure}")
    never = [name for name, count in total.items() if not count.valid and name not in REFUSED]
    for name in never:
        print(f"never valid: {name}")
        if errors:
            for error, times in sorted(total[name].errors.items(), key=lambda pair: -pair[1])[:4]:
                print(f"    {times} {error}")
    calls, valid = (sum(getattr(count, what) for count in total.values()) for what in ("calls", "valid"))
    failed = sum(len(count.failures) for count in total.values())
    overloads_failed = sum(bool(count.failures) for count in total.values())
    print(
        f"{len(total)} overloads, {calls} calls, {valid} valid,"
        f" {failed} failures of {overloads_failed} overloads, {len(never)} never valid, {seconds:.1f} s"
    )
    return 1 if failed or never else 0


if __name__ == "__main__":
    sys.exit(main())
