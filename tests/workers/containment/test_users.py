"""A user of its own for each job's evaluators: what the kernel's ordinary rules hold by themselves."""

from __future__ import annotations

import errno
import os
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment import users
from assay.workers.containment.contain import contain, demanded
from assay.workers.containment.kernel import drop_capabilities
from assay.workers.containment.policy import Policy, users_here
from assay.workers.containment.probe import demanded_parts, missing_parts
from assay.workers.containment.settings import Containment, from_environment
from assay.workers.containment.users import Users
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import EvaluatorProcess
from tests.support.children import in_a_child
from tests.support.jobs import evaluate_spec
from tests.support.mounts import open_home
from tests.support.workers import CLEAN

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become other users"),
    pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}"),
]
USERS = Users(1_900_000_000, 1 << 24)
KINDS: dict[str, dict[str, Any]] = {
    "evaluation": {},
    "training": {"processes": True},
    "training on several devices": {"processes": True, "loopback": True},
}


@pytest.fixture
def state() -> Iterator[Path]:
    """The state of a service of root, with two jobs; pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="assay-test-") as folder:
        Path(folder).chmod(0o755)
        made = Path(folder, "state")
        for job in ("mine", "other"):
            (made / "artifacts" / job).mkdir(parents=True)
            (made / "artifacts" / job / "weights").write_text(job)
        (made / "assay.sqlite").write_text("keys")
        (made / "mine").mkdir()  # its temporary folder
        yield made


def policy(state: Path, *files: Path, job: str = "mine", **changes: Any) -> Policy:
    folder = state / "artifacts" / job
    values: dict[str, Any] = {"libraries": (), "temporary": state.parent / f"temporary-{job}", "users": USERS}
    made = Policy(folder=folder, files=frozenset(files), **(values | changes))
    made.temporary.mkdir(parents=True, exist_ok=True)
    return made


def said(work: Callable[[], Any]) -> str:
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def on_the_service(state: Path, service: int) -> dict[str, Callable[[], Any]]:
    other = state / "artifacts" / "other"
    return {
        "signal": lambda: os.kill(service, 0),
        "reschedule": lambda: os.sched_setaffinity(service, os.sched_getaffinity(0)),
        "slow": lambda: os.setpriority(os.PRIO_PROCESS, service, 19),
        "read the environment": lambda: Path(f"/proc/{service}/environ").read_bytes(),
        "open the memory": lambda: Path(f"/proc/{service}/mem").open("rb").close(),
        "give the state away": lambda: os.chown(state, 0, 0),
        "set the state's times": lambda: os.utime(state, (0, 0)),
        "list the state": lambda: os.listdir(state),
        "list the artifacts": lambda: os.listdir(state / "artifacts"),
        "read the database": (state / "assay.sqlite").read_text,
        "add to the database": lambda: (state / "assay.sqlite").open("a").close(),
        "plant a file": lambda: (state / "planted").write_text("x"),
        "read another job's file": (other / "weights").read_text,
        "list another job's files": lambda: os.listdir(other),
        "change another job's mode": lambda: other.chmod(0o777),
        "become root": lambda: os.setresuid(0, 0, 0),
        "close the state": lambda: state.chmod(0),
    }


@pytest.fixture
def service() -> Iterator[int]:
    """Another process of root, without root's rights as an evaluator is: its memory is read by its user."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        drop_capabilities()
        os.write(write, b"x")
        signal.pause()
        os._exit(0)
    os.read(read, 1)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
def test_the_ordinary_rules_alone_hold_an_evaluator(state: Path, service: int, kind: str) -> None:
    """No Landlock, no filter: root without rights, as evaluators of root were, may do all of it."""
    users._close(state, ())
    chosen = policy(state, **KINDS[kind])
    mine = USERS.of(chosen.folder)

    def work(part: str) -> dict[str, str]:
        missing = contain(chosen, (part,))
        assert "user" not in missing
        found = {name: said(call) for name, call in on_the_service(state, service).items()}
        return found | {"is": str((os.getresuid(), os.getresgid()))}

    held = in_a_child(lambda: work("user"))
    assert held.pop("is") == str(((mine, mine, mine), (mine, mine, mine)))
    permissions = {"signal", "reschedule", "slow", "close the state", "give the state away"}
    permissions |= {"set the state's times", "change another job's mode", "become root"}
    assert held == {name: "EPERM" if name in permissions else "EACCES" for name in held}
    chosen = replace(chosen, users=None)
    free = in_a_child(lambda: work("capabilities"))
    assert free == dict.fromkeys(held, "done") | {"is": str(((0, 0, 0), (0, 0, 0)))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_its_own_user_works_under_all_parts(state: Path, kind: str) -> None:
    """It writes its folder and the temporary one, and reads the weights that are named."""
    weights = state / "artifacts" / "other" / "weights"
    weights.chmod(0o600)
    (state / "artifacts" / "other" / "log").write_text("x")
    users._close(state, ())
    chosen = policy(state, weights, **KINDS[kind])

    def work() -> list[str]:
        assert contain(chosen) == {}
        (chosen.folder / "made").mkdir()
        (chosen.folder / "made" / "file").write_text("x")
        (chosen.folder / "weights").write_text("changed")
        (chosen.temporary / "file").write_text("x")
        os.replace(chosen.temporary / "file", chosen.folder / "moved")
        return [
            weights.read_text(),
            said((weights.parent / "log").read_text),
            said(lambda: weights.open("a")),
        ]

    assert in_a_child(work) == ["other", "EACCES", "EACCES"]
    mine, theirs = USERS.of(chosen.folder), USERS.of(weights.parent)
    made = [chosen.folder, *chosen.folder.rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(mine, mine)}
    assert stat.S_IMODE(chosen.folder.stat().st_mode) == 0o2770
    assert (weights.stat().st_uid, weights.stat().st_gid) == (0, theirs), "lent, not given"
    assert stat.S_IMODE(weights.stat().st_mode) == 0o640
    assert stat.S_IMODE(weights.parent.stat().st_mode) == 0o750


def test_an_evaluator_that_stays_root_uses_what_an_earlier_one_left(state: Path) -> None:
    """A supervisor that starts anew, and gives no users any more; root's rights are dropped."""
    weights = state / "artifacts" / "other" / "weights"
    for job in ("other", "mine"):
        assert in_a_child(partial(contain, policy(state, job=job))) == {}
    weights.chmod(0o640)

    def work() -> str:
        assert contain(policy(state, weights, users=None)) == {}
        (state / "artifacts" / "mine" / "new").write_text("x")
        with (state / "artifacts" / "mine" / "weights").open("a") as file:
            file.write("x")
        return weights.read_text()

    assert in_a_child(work) == "other"
    chosen = policy(state)

    def again() -> str:
        assert contain(chosen) == {}
        with (state / "artifacts" / "mine" / "new").open("a") as file:
            file.write("y")
        return (state / "artifacts" / "mine" / "new").read_text()

    assert in_a_child(again) == "xy"


def test_nothing_outside_the_folder_is_given_away(state: Path) -> None:
    """By a link or a second name that a job without Landlock could make."""
    folder, secret = state / "artifacts" / "mine", state / "secret"
    secret.write_text("x")
    os.link(secret, folder / "second")
    (folder / "link").symlink_to(secret)
    (folder / "way").symlink_to(state / "artifacts" / "other")
    other = policy(state, folder / "second", folder / "link", job="other")
    mine = policy(state)
    assert in_a_child(lambda: contain(mine)) == {}
    assert "user" in in_a_child(lambda: contain(other)), "a link in the place of weights is no weights"
    untouched = (secret, state, state / "artifacts" / "other" / "weights")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in untouched} == {(0, 0)}


def test_the_state_is_passed_through_and_what_is_in_it_closed(state: Path) -> None:
    catalog = state / "extra-components.json"
    catalog.write_text("[]")
    state.chmod(0o700)
    users._close(state, [catalog])
    found = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (state, *state.iterdir())}
    jobs = {oct(stat.S_IMODE(path.stat().st_mode)) for path in (state / "artifacts").iterdir()}
    assert found == {
        "state": "0o701",
        "artifacts": "0o751",
        "assay.sqlite": "0o640",
        "mine": "0o750",
        catalog.name: "0o644",
    }
    assert jobs == {"0o750"}


def reason(state: Path, *libraries: Path, environment: dict[str, str] | None = None) -> str:
    """Why no user is given; empty where one is."""

    def work() -> str:
        open_home()
        return USERS.tried(state, libraries, environment or {}).refused

    return str(in_a_child(work))


def test_what_another_user_cannot_read_is_named(state: Path) -> None:
    library, data = state.parent / "library", state.parent / "data"
    library.mkdir()
    (data / "images" / "a").mkdir(parents=True)
    (data / "images" / "a" / "1.png").write_text("x")
    environment = {"ASSAY_DATA_ROOT": str(data)}
    assert reason(state, library, data, environment=environment) == ""
    (data / "images" / "broken").symlink_to("nowhere")
    (data / "images" / "a" / "1.png").chmod(0o600)
    assert reason(state, library, data, environment=environment) == (
        f"{data}/images/a/1.png cannot be read by another user"
    )
    library.chmod(0o700)
    assert (
        reason(state, library, data, environment=environment) == f"{library} cannot be read by another user"
    )
    state.parent.chmod(0o700)
    assert reason(state) == f"{state.parent} cannot be passed through by another user"
    state.parent.chmod(0o755)
    os.chown(state, 54321, 0)
    assert "is not root's" in reason(state)


def test_without_rights_or_such_a_user_none_is_given(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> str:
        os.setresuid(54321, 54321, 54321)
        return USERS.tried(state, (), {}).refused

    def bare() -> str:
        drop_capabilities()
        return USERS.tried(state, (), {}).refused

    assert "not root, and a user namespace of its own has one user alone" in in_a_child(other)
    assert "capabilities CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID" in in_a_child(bare)
    monkeypatch.setattr(os, "seteuid", lambda user: refuse(user) if user else None)
    assert "(ASSAY_EVALUATOR_USERS)" in in_a_child(lambda: USERS.tried(state, (), {}).refused)


def refuse(*_: Any) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize("how", ["data", "folder"])
def test_a_job_goes_on_as_root_where_its_user_cannot(
    state: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data came after the trial, or the file system gives nothing away."""
    data = state.parent / "photos"
    data.mkdir()
    (data / "1.png").write_text("x")
    (data / "1.png").chmod(0o600 if how == "data" else 0o644)
    if how == "folder":
        monkeypatch.setattr(os, "fchown", refuse)
    chosen = policy(state, data)

    def work() -> list[Any]:
        missing = contain(chosen)
        (chosen.folder / "result").write_text((data / "1.png").read_text())
        return [missing, os.geteuid(), demanded(missing, USERS)]

    missing, user, kept = in_a_child(work)
    assert user == 0
    assert set(missing) == {"user"}
    assert ("1.png cannot be read" if how == "data" else "Invalid argument") in missing["user"]
    assert kept == {}
    assert demanded(missing, replace(USERS, demanded=True)) == missing


def test_on_a_gpu_a_user_is_used_where_it_is_demanded(state: Path) -> None:
    def asked(demanded: bool) -> str:
        chosen = Containment("auto", state, users=replace(USERS, demanded=demanded))

        def work() -> str:
            open_home()
            found = users_here(chosen, {}, gpu=True)
            assert found is not None
            return found.refused

        return str(in_a_child(work))

    assert "CUDA was never tried" in asked(False)
    assert asked(True) == ""
    off = Containment("off", state, users=USERS)
    assert users_here(off, {}, gpu=False) is None


def test_groups_of_devices_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in (("nvidia0", 0o660), ("nvidiactl", 0o666), ("null", 0o660)):
        (tmp_path / name).touch()
        os.chown(tmp_path / name, 0, 44)
        (tmp_path / name).chmod(mode)
    monkeypatch.setattr(users, "DEVICES", tmp_path)
    assert [*users._device_groups()] == [44]


@pytest.mark.costly
def test_the_probe_and_the_settings_say_what_is_demanded(state: Path) -> None:
    def work(mode: Any) -> list[Any]:
        open_home()
        chosen = WorkerSettings(state=state, sandbox_user=mode)
        told = from_environment(dict(chosen.trial))
        assert told == chosen.containment
        return [missing_parts(chosen.trial), demanded_parts(chosen.trial)]

    assert in_a_child(lambda: work("required")) == [{}, {}]
    state.parent.chmod(0o700)
    for mode, demands in (("auto", False), ("required", True)):
        missing, kept = in_a_child(partial(work, mode))
        assert set(missing) == {"user"}
        assert kept == (missing if demands else {})
    assert in_a_child(lambda: work("off")) == [{}, {}]


@pytest.mark.parametrize("text", ["", "0-5", "5", "7-6", "1-4294967295", "a-b"])
def test_a_range_of_users_is_checked(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: FIRST-LAST"):
        WorkerSettings(evaluator_users=text)
    chosen = WorkerSettings(evaluator_users="100-199").containment.users
    assert chosen is not None
    assert chosen == Users(100, 100)
    assert 100 <= chosen.of(Path("/state/artifacts/job")) < 200
    made = Policy(Path("/a"), frozenset(), (), Path("/b"), users=chosen)
    assert Policy.from_text(made.to_text()) == made


@pytest.mark.costly
def test_the_real_evaluator_plans_as_its_own_user(state: Path) -> None:
    """Started by a supervisor's means, with everything required; its Python is read by that user."""

    def work() -> list[Any]:
        assert open_home()
        chosen = WorkerSettings(state=state, sandbox="required", sandbox_user="required")
        evaluator = EvaluatorProcess(chosen)
        request: Any = {
            "kind": "plan",
            "job": "job",
            "spec": evaluate_spec(name="") | {"evaluations": [CLEAN]},
            "plan": None,
            "evaluation": 0,
            "start": 0,
            "stop": 0,
            "folder": str(chosen.folder("job")),
            "weights": None,
            "sources": {},
            "shard_seconds": 240.0,
            "checkpoint_seconds": 60.0,
            "cores": 1,
        }
        try:
            evaluator.send(request)
            message = evaluator.receive(120)
            while message is not None and message["type"] == "progress":
                message = evaluator.receive(120)
            pid = Path(f"/proc/{evaluator.pid}/task/{evaluator.pid}/children").read_text().split()[0]
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            capabilities = {int(lines[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
            return [message, lines["Uid"].split(), lines["Gid"].split(), lines["Seccomp"], [*capabilities]]
        finally:
            evaluator.stop(2)

    message, user, group, filtered, capabilities = in_a_child(work)
    assert message["type"] == "plan", message
    assert user == group == [str(USERS.of(Path("job")))] * 4
    assert (filtered.strip(), capabilities) == ("2", [0])
