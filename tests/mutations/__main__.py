"""Break the source in many small ways, and check that a test detects each change.

    python -m tests.mutations [-k TEXT] [--jobs N] [--timeout SECONDS]

Each change is made in a copy of the project, where its tests run. The exit code is 1 if a change
survives, if it is invalid, or if a test fails without any change.
"""

from __future__ import annotations

import argparse
import compileall
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.mutations.table import ROOT, Mutation, mutations

_NOT_COPIED = (".*", "__pycache__", "build", "dist", "data", "headrace-state")
_KILLED, _EQUIVALENT = "killed", "equivalent"
_STYLES = {_KILLED: "green", _EQUIVALENT: "blue"}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a mutation, and the first line of the failure that detected it."""

    mutation: Mutation
    outcome: str
    reason: str = ""

    @property
    def fine(self) -> bool:
        return self.outcome in _STYLES


class Tree:
    """A copy of the project to mutate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(
            ROOT, folder, ignore=shutil.ignore_patterns(*_NOT_COPIED), dirs_exist_ok=True
        )
        # Checked by content: a file may change twice within the clock's resolution.
        compileall.compile_dir(
            folder / "src", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH
        )

    def pytest(self, tests: Iterable[str], *words: str, timeout: float) -> tuple[int, str]:
        """Run tests; returns the exit code and the output, 124 if they take too long."""
        # Slow tests too.
        pytest = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.folder / 'src'}:{self.folder}",
            "HYPOTHESIS_PROFILE": "unshrunk",
            "HYPOTHESIS_SEED": "",
        }
        with subprocess.Popen(
            [*pytest, *words, *tests], cwd=self.folder, env=environment, text=True, process_group=0,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)  # with its Spark and its workers
                output, _ = process.communicate()
                return 124, output
        return process.returncode, output

    def judge(self, mutation: Mutation, timeout: float) -> Verdict:
        """Make a change, run its tests one by one, and undo the change."""
        if mutation.equivalent:
            return Verdict(mutation, _EQUIVALENT, mutation.equivalent)
        file = self.folder / mutation.path
        text = file.read_text()
        try:
            file.write_text(mutation.apply(text))
            reason = ""
            for test in mutation.tests:
                code, output = self.pytest([test], "-x", timeout=timeout)
                outcome, reason = _verdict(code, output)
                if outcome != _KILLED:
                    return Verdict(mutation, outcome, f"{test}: {reason}")
            return Verdict(mutation, _KILLED, reason)
        except ValueError as error:
            return Verdict(mutation, "invalid", str(error))
        finally:
            file.write_text(text)


def _verdict(code: int, output: str) -> tuple[str, str]:
    """The outcome of a test under a mutation. Only a failed or hanging test detects it."""
    if code == 0:
        return "SURVIVED", "passed"
    if code == 124 or "+ Timeout +" in output:
        return _KILLED, "hangs"
    error = re.search(r"^E +(.*)", output, re.MULTILINE)
    reason = error[1] if error else output.strip().rpartition("\n")[2]
    if code != 1 or not re.search(r"\b\d+ failed\b", output):
        return "invalid", reason
    if re.match(r"(NameError|SyntaxError|IndentationError|ImportError)\b", reason):
        return "invalid", reason
    return _KILLED, reason


def unmutated(tree: Tree, chosen: Sequence[Mutation], jobs: int, console: Console) -> bool:
    """True if all named tests pass without a mutation."""
    tests = sorted({test for mutation in chosen for test in mutation.tests})
    if not tests:
        return True
    console.print(f"{len(tests)} tests, without any mutation first", highlight=False)
    # One process, because starting Spark is slow.
    words = ("-n", str(jobs), "--dist", "loadfile", "-rfE") if jobs > 1 else ("-rfE",)
    code, output = tree.pytest(tests, *words, timeout=3600)
    if code:
        console.print("these tests fail without any mutation:", style="red")
        console.print(output[-4000:], markup=False, highlight=False)
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "-k",
        metavar="TEXT",
        default="",
        help="an area, a file or words of a mutation; several with 'or' between",
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--timeout", type=float, default=400, help="seconds for each test")
    parser.add_argument("--no-baseline", action="store_true", help="only the mutated runs")
    arguments = parser.parse_args()
    wanted = arguments.k.lower().split(" or ")
    chosen = [
        one for one in mutations() if any(word in f"{one} {one.file}".lower() for word in wanted)
    ]
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not chosen:
        console.print(f"no mutation matches {arguments.k!r}")
        return 1
    verdicts: list[Verdict] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-mutations-") as temporary:
        made = [Tree(Path(temporary) / str(job)) for job in range(arguments.jobs)]
        if not arguments.no_baseline and not unmutated(made[0], chosen, arguments.jobs, console):
            return 1
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for tree in made:
            trees.put(tree)

        def judge(mutation: Mutation) -> Verdict:
            tree = trees.get()
            try:
                return tree.judge(mutation, arguments.timeout)
            finally:
                trees.put(tree)

        with (
            ThreadPoolExecutor(arguments.jobs) as pool,
            Progress(console=console, disable=not console.is_terminal) as progress,
        ):
            task = progress.add_task("mutations", total=len(chosen))
            for done in as_completed([pool.submit(judge, mutation) for mutation in chosen]):
                verdict = done.result()
                verdicts.append(verdict)
                if not verdict.fine or not console.is_terminal:
                    progress.console.print(
                        f"{verdict.outcome}: {verdict.mutation}", markup=False, highlight=False
                    )
                progress.advance(task)
    verdicts.sort(key=lambda verdict: chosen.index(verdict.mutation))
    code = report(verdicts, console)
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    console.print(f"{len(chosen)} mutations in {minutes} min {seconds} s", highlight=False)
    return code


def report(verdicts: list[Verdict], console: Console) -> int:
    """Print the outcome of every mutation; returns the exit code."""
    table = Table("area", "mutation", "outcome", "first words of the failure")
    for verdict in verdicts:
        style = _STYLES.get(verdict.outcome, "bold red")
        outcome = f"[{style}]{verdict.outcome}[/]"
        reason = verdict.reason[:120].replace("[", r"\[")
        table.add_row(verdict.mutation.area, verdict.mutation.breaks, outcome, reason)
    console.print(table)
    counts = Counter(verdict.outcome for verdict in verdicts)
    console.print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return 0 if all(verdict.fine for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
