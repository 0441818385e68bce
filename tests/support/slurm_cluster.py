"""A real Slurm of several nodes on this machine, from Debian's `slurm-wlm`: no munge, no cgroups."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.e2e.running import command_line, kill, processes, wait_for
from tests.support.servers import free_port

COMMANDS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
SILENT_SECONDS = 10  # after which a node is down
CONFIGURATION = """ClusterName=assay
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=10
SlurmctldPort={port}
StateSaveLocation={state}/controller
SlurmctldPidFile={state}/controller.pid
SlurmctldLogFile={state}/controller.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
JobRequeue=1
SlurmdTimeout={silent}
KillWait=20
SlurmdSpoolDir={state}/%n
SlurmdLogFile={state}/%n.log
SlurmdPidFile={state}/%n.pid
TaskProlog={state}/own-folders
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 State=UP
"""

# What a job's task prints here is its environment: each node has a home and a temporary folder of its own.
OWN_FOLDERS = """#!/bin/sh
mkdir -p "{state}/$SLURMD_NODENAME-own"
echo "export HOME={state}/$SLURMD_NODENAME-own"
echo "export TMPDIR={state}/$SLURMD_NODENAME-own"
"""


def installed() -> bool:
    """Whether Slurm is here, or could be installed by root from Debian's packages."""
    if not _complete() and os.getuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm"]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            subprocess.run(["apt-get", "update"], capture_output=True, check=False)
            subprocess.run(install, capture_output=True, check=False)
    return _complete() and os.getuid() == 0  # slurmd takes no other user's work


def _complete() -> bool:
    return all(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in COMMANDS)


class SlurmCluster:
    """A controller and its nodes `n1`, `n2`, ..., each of one core and with the feature `gpu`."""

    def __init__(self, folder: Path, nodes: int = 4) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        host = socket.gethostname()
        (folder / "controller").mkdir(parents=True)
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1"
            " RealMemory=1000 Feature=gpu State=UNKNOWN"
            for node in self.nodes
        ]
        values = {"host": host, "user": "root", "port": free_port(), "state": folder}
        text = CONFIGURATION.format(**values, silent=SILENT_SECONDS, nodes="\n".join(lines))
        (folder / "slurm.conf").write_text(text)
        (folder / "own-folders").write_text(OWN_FOLDERS.format(state=folder))
        (folder / "own-folders").chmod(0o755)
        path = f"{os.environ['PATH']}:/usr/sbin"
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> SlurmCluster:
        """Starts all, and waits until every node is idle."""
        self._start("controller", "slurmctld", "-D")
        for node in self.nodes:
            self.start_node(node)
        wait_for(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), 60)
        return self

    def start_node(self, node: str) -> None:
        """Starts a node."""
        self._start(node, "slurmd", "-D", "-N", node)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                command, env=os.environ | self.environment, stdout=out, stderr=out, start_new_session=True
            )

    def kill_node(self, node: str) -> None:
        """As if its power failed: its daemon and everything that it runs."""
        daemon = self._processes.pop(node)
        daemon.kill()
        daemon.wait()
        for pid in self.processes_of(node):
            with contextlib.suppress(ProcessLookupError):
                kill(pid)

    def processes_of(self, node: str) -> list[int]:
        """The processes of the jobs of a node, and what watches over them."""
        everything = processes()
        own = [pid for pid in everything if f"SLURMD_NODENAME={node}\0" in _environment(pid)]
        watching = {everything[pid] for pid in own if "slurmstepd" in command_line(everything[pid])}
        return [*watching, *own]

    def ask(self, *command: str) -> str:
        """The answer of one of Slurm's commands."""
        environment = os.environ | self.environment
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    def states(self) -> dict[str, str]:
        """The state of each node."""
        try:
            lines = self.ask("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()
        except subprocess.CalledProcessError:
            return {}
        return dict(line.split() for line in lines)

    def jobs(self) -> list[dict[str, str]]:
        """The jobs: id, state, node, and how often each was requeued."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i %T %N").splitlines()
        rows = [f"{line} -".split()[:3] for line in lines]
        return [{"id": row[0], "state": row[1], "node": row[2]} for row in rows]

    def stop(self) -> None:
        """Ends all, with the jobs."""
        for node in self.nodes:
            for pid in self.processes_of(node):
                with contextlib.suppress(ProcessLookupError):
                    kill(pid)
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
