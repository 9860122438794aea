"""The contract of word selectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from fsframework.interfaces.component import Configurable

__all__ = ["WordSelector"]


class WordSelector(Configurable, ABC):
    """Captions in, words out: which words of a sentence count as attributes.

    Source: Omega of FewSTAB (Zheng et al. 2024), section 4.2, step 2.
    """

    @abstractmethod
    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        """Return the words selected from each caption.

        Args:
            captions: one text an image; it may be empty or in any language.

        Returns:
            One set of non-empty words a caption, in the order of ``captions``. The words of a
            caption must not depend on the captions beside it.
        """

    def provenance(self) -> Mapping[str, str]:
        """Return what must be known to select the same words again: tagger, its version, ...

        It is kept in the header of every table made from these words.
        """
        return {}

    def notes(self) -> list[str]:
        """Return what a user should know of these words, one sentence each; by default nothing.

        It is asked once the detector is prepared, and told before the first caption is read.
        """
        return []
