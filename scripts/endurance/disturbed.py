"""Kills, full disks and damage: a disturbed run ends as an undisturbed one, or says what is wrong."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from subjects import Subject, compared, subjects, undisturbed
from trials import Ended, Plan, Trial, Trials, call, workspace


def _due(plan: Plan, folder: Path, what: str, goal: int) -> Iterator[tuple[Subject, str, int, random.Random]]:
    """The subjects that lack trials of a kind: with the kind's name, how many, and a random stream."""
    for subject in subjects(folder, plan):
        kind = f"{what}: {subject.name}"
        if missing := plan.missing(kind, goal):
            yield subject, kind, missing, plan.draw(kind)


def kills(plan: Plan) -> Trials:
    """SIGKILL at random moments; the run is resumed until it ends, and compared."""
    with workspace() as folder:
        for subject, kind, missing, draw in _due(plan, folder, "kills", 30):
            expected, seconds, _ = undisturbed(subject, folder)
            number = 0
            while missing > 0:
                number += 1
                out = folder / f"run-{number}"
                killed = _killed(subject, out, folder / "log", [draw.uniform(0.02, 0.98) * seconds for _ in range(3)])
                if not killed:
                    seconds /= 1.5  # the machine was busier when it was measured
                ended = call([*subject.words(out), *(subject.resume if killed else ())], folder)
                if not killed and ended.is_refusal:  # it had ended well, and its folder is not written over
                    ended = Ended(code=0, said="")
                verdict, what = compared(subject, out, expected, ended)
                missing -= killed
                if killed or what:
                    yield Trial(kind=kind, verdict=verdict, what=what, times=killed or 1)
                shutil.rmtree(out, ignore_errors=True)


def _killed(subject: Subject, out: Path, log: Path, moments: list[float]) -> int:
    """How many kills hit a living process, of one run that was resumed after each."""
    from harness import Command, start

    for killed, moment in enumerate(moments):
        process = start(Command(words=[*subject.words(out), *(subject.resume if killed else ())]), log)
        process.join(moment)
        if process.exitcode is not None:
            return killed
        process.kill()
        process.join()
    return len(moments)


def disks(plan: Plan) -> Trials:
    """A disk that is full at a random moment: one line, and after it is emptied the run goes on."""
    with workspace() as folder:
        for subject, kind, missing, draw in _due(plan, folder, "full disks", 10):
            expected, _, whole = undisturbed(subject, folder)
            largest = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
            for number in range(missing):
                out = folder / f"run-{number}"
                ended = call(subject.words(out), folder, limit=int(largest * draw.uniform(0.005, 0.95)))
                verdict, what = ended.verdict()
                if verdict == "held":
                    verdict, what = compared(subject, out, expected, ended)
                elif verdict == "refused":
                    again = call([*subject.words(out), *subject.resume], folder)
                    verdict, what = compared(subject, out, expected, again)
                    verdict = "refused" if verdict == "held" else verdict
                yield Trial(kind=kind, verdict=verdict, what=what)
                shutil.rmtree(out, ignore_errors=True)


def damage(plan: Plan) -> Trials:
    """One file of a finished run is bent; what is resumed ends as before, or says what is wrong."""
    with workspace() as folder:
        for subject, kind, missing, draw in _due(plan, folder, "damage", 20):
            if not subject.resume:
                continue
            expected, _, whole = undisturbed(subject, folder)
            files = sorted(path for path in whole.rglob("*") if path.is_file() and path.name != ".lock")
            for number in range(missing):
                out = folder / f"run-{number}"
                shutil.copytree(whole, out)
                path = out / draw.choice(files).relative_to(whole)
                where = f"{bend(path, draw)} {path.relative_to(out)}: "
                ended = call([*subject.words(out), *subject.resume], folder)
                verdict, what = ("refused", "") if ended.is_refusal else compared(subject, out, expected, ended)
                yield Trial(kind=kind, verdict=verdict, what=what and where + what)
                shutil.rmtree(out)


def bend(path: Path, draw: random.Random) -> str:
    """Change a file, and say how."""
    data = bytearray(path.read_bytes())
    how = draw.choice(("removed", "emptied", "cut", "flipped", "zeroed"))
    if how == "removed":
        path.unlink()
        return how
    if how == "cut":
        data = data[: draw.randrange(len(data) or 1)]
    elif how == "flipped" and data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif how == "zeroed":
        data = bytearray(len(data))
    path.write_bytes(b"" if how == "emptied" else data)
    return how
