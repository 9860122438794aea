"""Vectors without the directions of words in the text tower."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from fsf_methods.robust._projection import without
from fsframework.interfaces import (
    Backbone,
    FewShotMethod,
    Known,
    MethodWrapper,
    OptionError,
    check_above,
)

__all__ = ["TextProjected"]


class TextProjected(MethodWrapper):
    """Remove from vectors the directions of the words' text features.

    Source: Chuang, Jampani, Li, Torralba and Jegelka 2023, "Debiasing Vision-Language Models via
    Biased Prompts" (arXiv 2302.00070), section 3: the orthogonal projection on the complement of
    the text features of spurious prompts. It needs a backbone that reads text; for others see
    ``word-projected``.

    The rows of A are the text features of the pool's words in ``template``, of length 1, and a
    vector is mapped to x - A' (A A' + r I)^-1 A x, which as r goes to 0 is that projection.

    Deviations: the source projects the text features of the class names in a zero-shot classifier,
    and calibrates by pairs of prompts; here images are projected, of support and queries, without
    calibration. The base is trained on vectors as they are. Where there are more words than numbers
    in a vector, all directions shrink, those of many words most.

    Args:
        base: the method that scores the vectors. It consumes vectors and embeds nothing itself.
        template: with ``{}`` where the word goes.
        ridge: r, above 0; a word that resembles no other keeps r / (1 + r) of its direction.

    Raises:
        OptionError: an option is outside its range, or the base is not as above.
    """

    needs_words = True
    needs_text = True

    def __init__(
        self, *, base: FewShotMethod, template: str = "a photo of {}", ridge: float = 0.01
    ) -> None:
        super().__init__(base=base)
        name = type(base).__name__
        if base.consumes != "vectors" or base.embeds:
            raise OptionError(
                f"base must consume vectors as they are, but {name} embeds or consumes other items"
            )
        check_above(0, ridge=ridge)
        if template.count("{}") != 1:
            raise OptionError(f"template must contain {{}} once, got {template!r}")
        self.template = template
        self.ridge = ridge
        self._text: tuple[Backbone, ...] = ()

    def read_with(self, backbone: Backbone) -> None:
        """Remember whose text tower embeds the words."""
        super().read_with(backbone)
        self._text = (backbone,)  # in a tuple, so that PyTorch does not count its weights here

    def embed_words(self, words: Sequence[str]) -> Tensor:
        """Map w words to unit text features, float ``(w, D)``.

        Raises:
            OptionError: the backbone reads no text.
        """
        if not self._text or not self._text[0].reads_text:
            raise OptionError(
                "TextProjected needs a backbone that reads text; word-projected needs none"
            )
        texts = [self.template.replace("{}", word) for word in words]
        return functional.normalize(self._text[0].text_features(texts), dim=1)

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Return the base's scores of projected vectors, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
            known: with the words' text features.
        """
        if known.word_vectors is not None:
            rows = known.word_vectors.to(query.device)
            support, query = (without(items, rows, self.ridge) for items in (support, query))
        return self.base.scores_with(support, query, known)
