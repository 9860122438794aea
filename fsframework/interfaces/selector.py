"""The contract of word selectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from fsframework.interfaces.component import Configurable

__all__ = ["WordSelector"]


class WordSelector(Configurable, ABC, kind="selector"):
    """Captions in, words out: which words of a sentence count as attributes.

    Source: Omega of FewSTAB (Zheng et al. 2024), section 4.2, step 2.
    """

    @abstractmethod
    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        """Return the words selected from each caption.

        Args:
            captions: one text per image; it may be empty or in any language.

        Returns:
            One set of non-empty words per caption, in the order of ``captions``. The words of a
            caption must not depend on the other captions.
        """

    def provenance(self) -> Mapping[str, str]:
        """Return what is needed to select the same words again: tagger, its version, ...

        It is stored in the header of every table made from these words.
        """
        return {}

    def notes(self) -> list[str]:
        """Return what a user should know about these words, one sentence each; empty by default.

        It is called after the detector is prepared, and shown before the first caption is read.
        """
        return []
