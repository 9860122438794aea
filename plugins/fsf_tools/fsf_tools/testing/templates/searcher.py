"""A searcher, which proposes values of options.

Try it: fsf sweep --method knn --search my-searcher --space method.k=1:5
"""

import json
import random
from pathlib import Path
from typing import Any

from fsf_tools.searcher import Range, Search, Searcher, Space, State, Trial


class MySearcher(Searcher):
    """Values at random."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def open(self, file: Path, space: Space) -> Search:
        """Return the search that a file holds; here a folder of that name."""
        return Trials(file.with_suffix(""), space, self.seed)


class Trials(Search):
    """A file for each trial; only the process that has the trial writes it."""

    def __init__(self, folder: Path, space: Space, seed: int) -> None:
        self.folder, self.space, self.seed = folder, space, seed
        folder.mkdir(exist_ok=True)

    def begin(self, number: int) -> Trial:
        """Return a trial; one that was begun before has the values it had."""
        if not self.file(number).exists():
            rng = random.Random(f"{self.seed} {number}")
            self.save(number, values={key: drawn(one, rng) for key, one in self.space.items()})
        return self.trial(number)

    def goes_on(self, number: int, epoch: int, accuracy: float) -> bool:
        """Return whether to train further, here always."""
        return True

    def end(
        self, number: int, state: State, *, score: float | None = None, reason: str = ""
    ) -> None:
        """Take note of what came of a trial."""
        self.save(number, state=state, score=score, reason=reason)

    def trials(self) -> list[Trial]:
        """Return all trials so far."""
        return [self.trial(int(path.stem)) for path in sorted(self.folder.glob("*.json"))]

    def trial(self, number: int) -> Trial:
        """Return a trial that was begun."""
        return Trial(number, **json.loads(self.file(number).read_text()))

    def save(self, number: int, **told: Any) -> None:
        """Add to what is known of a trial."""
        file = self.file(number)
        before = json.loads(file.read_text()) if file.exists() else {}
        whole = file.with_suffix(".new")
        whole.write_text(json.dumps(before | told))
        whole.replace(file)

    def file(self, number: int) -> Path:
        """Return the file of a trial."""
        return self.folder / f"{number:05d}.json"


def drawn(values: Range | tuple[str, ...], rng: random.Random) -> float | str:
    """Return a random value: a number of a range, or one of several names."""
    if not isinstance(values, Range):
        return rng.choice(values)
    if values.step:
        steps = int((values.high - values.low) / values.step)
        return values.low + values.step * rng.randint(0, steps)
    found = rng.uniform(values.low, values.high)
    if values.log:
        found = values.low * float((values.high / values.low) ** rng.random())
    return round(found) if values.whole else found
