"""A selector, which chooses words out of captions.

Try it: fsf run --detector vit-gpt2 -o detector.selector=my-selector
"""

import re
from collections.abc import Mapping, Sequence

from fsframework.interfaces import WordSelector, check_at_least


class MySelector(WordSelector):
    """Select words with a minimum number of letters."""

    # Options are keyword-only, have a type, and are stored under their own names.
    def __init__(self, *, least: int = 3) -> None:
        check_at_least(1, least=least)
        self.least = least

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        """Return the words of each caption, whatever the others are."""
        words = [re.findall(r"[a-z]+", caption.lower()) for caption in captions]
        return [frozenset(one for one in found if len(one) >= self.least) for found in words]

    def provenance(self) -> Mapping[str, str]:
        """Return every option that decides about words."""
        return {"least": str(self.least)}
