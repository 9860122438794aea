"""A searcher, which proposes values of options to try.

Try it: fsf sweep --method knn --search my-searcher --space method.k=1:5
"""

import json
import random
from pathlib import Path
from typing import Any

from fsf_tools.searcher import Range, Search, Searcher, Space, State, Trial


class MySearcher(Searcher):
    """Draws values at random."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def open(self, file: Path, space: Space) -> Search:
        """Return the search that a file holds, or a new one."""
        return Folder(file.with_suffix(""), space, self.seed)


class Folder(Search):
    """A file for each trial, which only the process that has the trial writes."""

    def __init__(self, folder: Path, space: Space, seed: int) -> None:
        self.folder, self.space, self.seed = folder, space, seed
        folder.mkdir(exist_ok=True)

    def begin(self, number: int) -> Trial:
        """Return a trial with its values, which stay once they are drawn."""
        if not self.file(number).exists():
            # Change how values are found. They depend on the seed and on the trials so far.
            rng = random.Random(f"{self.seed} {number}")
            self.save(number, values={name: drawn(one, rng) for name, one in self.space.items()})
        return self.trial(number)

    def goes_on(self, number: int, epoch: int, accuracy: float) -> bool:
        """Return whether to train a trial further after an epoch."""
        return True

    def end(
        self, number: int, state: State, *, score: float | None = None, reason: str = ""
    ) -> None:
        """Keep what came of a trial."""
        self.save(number, state=state, score=score, reason=reason)

    def trials(self) -> list[Trial]:
        """Return all trials so far, by number."""
        return [self.trial(int(path.stem)) for path in sorted(self.folder.glob("*.json"))]

    def trial(self, number: int) -> Trial:
        """Read a trial."""
        return Trial(number, **json.loads(self.file(number).read_text(encoding="utf-8")))

    def save(self, number: int, **changes: Any) -> None:
        """Write what is new of a trial."""
        file = self.file(number)
        before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        new = file.with_suffix(".new")
        new.write_text(json.dumps(before | changes), encoding="utf-8")
        new.replace(file)  # other processes read it meanwhile

    def file(self, number: int) -> Path:
        """Return the file of a trial."""
        return self.folder / f"{number:05d}.json"


def drawn(values: Range | tuple[str, ...], rng: random.Random) -> Any:
    """Return one of the values that an option may have."""
    if not isinstance(values, Range):
        return rng.choice(values)
    if values.step:
        steps = int((values.high - values.low) / values.step)
        return values.low + values.step * rng.randint(0, steps)
    if values.log:
        found = values.low * (values.high / values.low) ** rng.random()
    else:
        found = rng.uniform(values.low, values.high)
    return round(found) if values.whole else found
