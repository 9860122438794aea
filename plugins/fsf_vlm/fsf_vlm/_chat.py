"""Captions and tags by a local vision-language model that answers questions."""

from __future__ import annotations

from fsf_detectors.captioner import ImageToText
from fsf_detectors.hub import DtypeName
from fsf_vlm._prompts import prompt_text
from fsframework.interfaces import WordSelector

__all__ = ["Chat"]


class Chat(ImageToText):
    """Captions or tags by any model of Transformers that answers questions about an image.

    The prompt is inserted into the model's own chat template; otherwise as ``ImageToText``.

    Args:
        model: name on the hub or path of a folder.
        revision: branch, tag or commit on the hub; by default the main branch.
        prompt: what is asked about each image; ``captions`` and ``tags`` are names of questions
            for one sentence and for a list, the latter for the selector ``tags``.
        max_tokens: maximum number of tokens in an answer; as for ``ImageToText``, the start token
            counts.
        num_beams: width of the beam search; 1 always takes the most likely token.
        dtype: number format of the weights; ``auto`` is float32 on a CPU and float16 elsewhere.
        selector: selects words from captions; by default ``SpacySelector()``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        prompt: str = "captions",
        max_tokens: int = 64,
        num_beams: int = 1,
        dtype: DtypeName = "auto",
        selector: WordSelector | None = None,
    ) -> None:
        super().__init__(
            model=model,
            revision=revision,
            prompt=prompt_text(prompt),
            max_tokens=max_tokens,
            num_beams=num_beams,
            dtype=dtype,
            selector=selector,
        )
