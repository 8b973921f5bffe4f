"""A real Slurm of one node, private to the run that started it."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.services import free_port, running, unavailable, wait_until

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller_port}
SlurmdPort={node_port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdTimeout=30
MessageTimeout=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
Licenses=single:1
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE DefMemPerCPU=100 PriorityTier=1 State=UP
PartitionName=broken Nodes={host} MaxTime=INFINITE DefMemPerCPU=100 PriorityTier=1 State=UP
PartitionName=urgent Nodes={host} MaxTime=INFINITE DefMemPerCPU=100 PriorityTier=10 PreemptMode=OFF State=UP
"""


class SlurmCluster:
    """munged, slurmctld and slurmd on free ports, with all they keep in a temporary folder. Needs root."""

    def __init__(self) -> None:
        absent = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]
        if absent:
            unavailable(f"Slurm is not installed ({', '.join(absent)}): `make services` as root")
        if os.geteuid() != 0:
            unavailable("a Slurm of the tests' own can be started by root alone")
        self._folder = Path(tempfile.mkdtemp(prefix="backburner-slurm-"))
        self._folder.chmod(0o755)
        for name, mode in (("munge", 0o711), ("state", 0o755), ("spool", 0o755)):
            (self._folder / name).mkdir()
            (self._folder / name).chmod(mode)
        key = self._folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        self.conf = self._folder / "slurm.conf"
        self._host = host = socket.gethostname().partition(".")[0]
        ports = {"controller_port": free_port(), "node_port": free_port()}
        self.conf.write_text(_CONF.format(host=host, folder=self._folder, **ports))
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all of it, and return when the node takes jobs."""
        munge = self._folder / "munge"
        files = {
            "key-file": "key",
            "socket": "socket",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        self._begin(
            "munged", "--foreground", "--force", *(f"--{name}={munge / file}" for name, file in files.items())
        )
        assert wait_until((munge / "socket").exists), "munged did not start"
        self._begin("slurmctld", "-D")
        self._begin("slurmd", "-D")
        self._until_ready()

    def start_again(self, name: str) -> None:
        """Start a daemon that was ended, and return when the node takes jobs."""
        self._begin(name, "-D")
        self._until_ready()

    def stop(self, name: str) -> None:
        """Have one of the daemons end in order; the jobs go on."""
        self._daemons[name].terminate()
        self._part_from(name)

    def kill(self, name: str) -> None:
        """End one of the daemons at once; the jobs go on."""
        self._daemons[name].kill()
        self._part_from(name)

    def _part_from(self, name: str) -> None:
        process = self._daemons.pop(name)
        process.wait(30)
        running.discard(process.pid)

    def _until_ready(self) -> None:
        assert wait_until(self._is_ready, within=60), self._logs()

    def _is_ready(self) -> bool:
        """Whether the node takes jobs. One that Slurm has drained is resumed, as administrators do.

        Slurm drains a node that came back when its controller has sent it a job once more.
        """
        state = self.says("sinfo", "-h", "-o", "%T")
        if state.startswith("drain"):
            self.says("scontrol", "update", f"NodeName={self._host}", "State=RESUME")
        return state in ("idle", "mixed", "allocated")

    @contextlib.contextmanager
    def with_administrator(self) -> Iterator[None]:
        """Somebody resumes the node meanwhile, whenever Slurm drains it."""
        over = threading.Event()

        def look_after() -> None:
            while not over.wait(1):
                self._is_ready()

        administrator = threading.Thread(target=look_after, name="administrator")
        administrator.start()
        try:
            yield
        finally:
            over.set()
            administrator.join()

    def says(self, *command: str) -> str:
        """What a command of Slurm answers; empty where it fails."""
        done = subprocess.run(
            command,
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """The state of a job, or of one in an array."""
        return self.says("squeue", "--states=all", "--array", "-h", "-o", "%T", "-j", job)

    def close(self) -> None:
        self.says("scancel", "--user=root")
        wait_until(lambda: not self.says("squeue", "-h"), within=10)
        for name in [*self._daemons]:
            self.kill(name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, *command: str) -> None:
        name = command[0]
        assert name not in self._daemons, f"{name} runs already"
        ends: Sequence[str] = ()
        if setpriv := shutil.which("setpriv"):
            # So that it ends even when the test process is killed and no fixture can end.
            ends = (setpriv, "--pdeathsig", "KILL", "--")
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*ends, *command],
                env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "SLURM_CONF": str(self.conf)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )
        self._daemons[name] = process
        running.add(process.pid)

    def _logs(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("*.log")))
        return ""
