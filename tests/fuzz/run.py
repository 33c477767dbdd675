"""Coverage-guided fuzzing of the targets: `make fuzz ARGS="--minutes 10 [TARGET ...]"`.

Contract.  Each target runs in a process of its own for an equal share of the time, from its seeds
and from inputs that earlier runs found (``.fuzz/TARGET``, ignored by git).  An exception that a
target may not raise, more memory than ``RSS_MB_MAX`` or an input that takes ``INPUT_S_MAX`` ends
the target's run; the input is then in ``.fuzz/crashes`` and the command that repeats it is
printed.  Exit code 1 if there was a finding.  Needs the extra ``fuzz``.  """

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import atheris

RSS_MB_MAX = 1024
INPUT_S_MAX = 20
INPUT_BYTES_MAX = 1 << 16
ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / ".fuzz"
CRASHES = CORPUS / "crashes"


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which does not return."""
    # Modules of the project must be imported here: coverage is measured for these imports.
    with atheris.instrument_imports(include=["multiraft", "node", "chaos.history"],
                                    enable_loader_override=False):
        from tests.fuzz.targets import TARGETS, run

    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    CRASHES.mkdir(exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), f"-max_total_time={seconds}",
                   f"-rss_limit_mb={RSS_MB_MAX}", f"-timeout={INPUT_S_MAX}",
                   f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={CRASHES}/{name}-",
                   "-print_final_stats=1"], lambda data: run(name, data))
    atheris.Fuzz()


def repeat(name: str, path: Path) -> None:
    """Give a target the bytes of one file, outside of the fuzzer."""
    from tests.fuzz.targets import run

    print("accepted" if run(name, path.read_bytes()) else "refused")


def in_child(name: str, seconds: int) -> str:
    """Fuzz a target in a child process.  Returns its failure as text; empty = none."""
    done = subprocess.run([sys.executable, "-m", "tests.fuzz.run", "--alone", name, "--seconds",
                           str(seconds)], cwd=ROOT, capture_output=True, text=True)
    executed = [line.split()[-1] for line in done.stderr.splitlines()
                if line.startswith("stat::number_of_executed_units")]
    print(f"{name:<20} {executed[0] if executed else '?':>12} inputs   "
          f"{'FOUND SOMETHING' if done.returncode else 'nothing found'}", flush=True)
    if not done.returncode:
        return ""
    return f"---- {name} ----\n{done.stdout[-2000:]}{done.stderr[-6000:]}"


def main() -> int:
    """Fuzz the targets that the command line names.  Returns the exit code."""
    if "--alone" in sys.argv:
        fuzz(sys.argv[sys.argv.index("--alone") + 1], int(sys.argv[-1]))
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="give TARGET this input")
    chosen = parser.parse_args()
    names = chosen.targets or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}")
    if chosen.repeat:
        repeat(names[0], chosen.repeat)
        return 0
    seconds = max(1, int(chosen.minutes * 60 * chosen.jobs / len(names)))
    with ThreadPoolExecutor(chosen.jobs) as pool:
        found = [text for text in pool.map(lambda name: in_child(name, seconds), names) if text]
    for text in found:
        print(text)
    if found:
        print(f"inputs are in {CRASHES}; repeat one with "
              f"python -m tests.fuzz.run TARGET --repeat FILE")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
