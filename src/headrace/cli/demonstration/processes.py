"""The demo's processes: started, killed without warning, started again, and told to end."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from headrace.cli.demonstration.plan import Plan
from headrace.errors import LogError

_END_WITHIN = 20.0


class Process:
    """One worker, which may be several processes after each other."""

    def __init__(self, role: str, plan: Plan) -> None:
        self.role = role
        self.said = 0
        """The last number it printed."""
        self._plan = plan
        self._errors = Path(plan.folder) / f"{role}.errors"
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._killed = False

    def start(self) -> int:
        """Start it, or start it again; returns the process id."""
        self._killed = False
        module = "headrace.cli.demonstration.worker"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, self.role, self._plan.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()
        return self._process.pid

    def kill(self) -> int:
        """End it with SIGKILL, which no process can see coming; returns its id."""
        assert self._process is not None
        self._killed = True
        self._process.kill()
        self._gone(self._process)
        return self._process.pid

    def end(self) -> None:
        """Ask it to end, and wait for it."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._gone(self._process)

    def _gone(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if self._listener is not None:
            self._listener.join()

    @property
    def status(self) -> str:
        """`running`, `killed` or `done`."""
        if self._killed:
            return "killed"
        assert self._process is not None
        return "running" if self._process.poll() is None else "done"

    def check(self) -> None:
        """Return unless it has failed by itself."""
        if self._killed or self._process is None or not self._process.poll():
            return
        lines = self._errors.read_text(errors="replace").strip().splitlines() or ["no message"]
        raise LogError(
            f"The {self.role} process of the demo has ended with {self._process.returncode}: "
            f"{lines[-1]}",
            hint="Run the demo again; if it fails again, please report it",
        )

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    self.said = int(line)
