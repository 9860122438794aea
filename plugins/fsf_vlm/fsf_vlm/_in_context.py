"""In-context learning by the likelihoods of a local vision-language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fsf_vlm._few_shot import INSTRUCTION, InContextMethod, Labels, Task
from fsf_vlm._local import LocalModel
from fsframework.interfaces import Backbone, OptionError, check_at_least, check_one_of

__all__ = ["InContext"]


class InContext(InContextMethod):
    """The support is a prompt of a vision-language model; scores are likelihoods of the labels.

    Source: Tsimpoukelli, Menick, Cabi, Eslami, Vinyals and Hill 2021, "Multimodal Few-Shot Learning
    with Frozen Language Models" (NeurIPS), and Brown et al. 2020, "Language Models are Few-Shot
    Learners" (NeurIPS), section 2.4, for scores by the likelihood of each label per token. They
    have no chat templates: here each image is a turn of the user and its label the answer.

    The score of a way is the log-likelihood of its label after the support and the query. Each
    image is encoded once; the keys and values of the support are computed once per task, those of a
    query once for all labels. That this changes no likelihood is checked with two images when the
    model is loaded; a model for which it does, such as one whose support tokens see later ones,
    reads the whole conversation for every query and label.

    Args:
        model: name on the hub or path of a folder; a model of Transformers with a chat template.
        revision: branch, tag or commit on the hub; by default the main branch.
        labels: ``names`` of the classes; ``letters``, which tell nothing about them; or
            ``permuted`` names: each way is shown, and scored, with the name of another way. A
            model that reads the support does as well as with ``names``, one that goes by the
            names does worse (after Min et al. 2022, who draw labels at random and keep the scores).
        normalise: divides the log-likelihood by the number of ``tokens`` of the label, or ``none``.
        instruction: begins the conversation; ``{labels}`` stands for the labels of the task.
        seed: of the orders of shots and labels, of letters and permutations. They are drawn from it
            and the content of the support.
        batch: number of sequences per forward pass.
        shared: whether keys and values of the support are computed once per task.
        dtype: number format of the weights; ``auto`` is float32 on a CPU and float16 elsewhere.

    Raises:
        OptionError: an option is outside its range.
    """

    argument: ClassVar[str] = "model"
    reads: ClassVar[tuple[str, ...]] = ("model",)
    reads_values = "it tokenises labels and digests images, by which the order of shots is drawn"

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        model: str,
        revision: str | None = None,
        labels: Labels = "names",
        normalise: Literal["tokens", "none"] = "tokens",
        instruction: str = INSTRUCTION,
        seed: int = 0,
        batch: int = 16,
        shared: bool = True,
        dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto",
    ) -> None:
        super().__init__(labels=labels, instruction=instruction, seed=seed)
        if not model.strip():
            raise OptionError("model must be the name of a model on the hub or a folder, not empty")
        check_one_of(("tokens", "none"), normalise=normalise)
        check_one_of(("auto", "float32", "float16", "bfloat16"), dtype=dtype)
        check_at_least(1, batch=batch)
        self.model = model
        self.revision = revision
        self.normalise = normalise
        self.batch = batch
        self.shared = shared
        self.dtype = dtype
        self._local: LocalModel | None = None
        self._asked = 0

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Find the model; its weights are loaded when the first task is scored.

        Raises:
            DataError: the model is missing, or does not answer questions about images.
        """
        super().build(item_shape, n_base_classes, backbone)
        self._local = LocalModel(
            self.model,
            self.revision,
            dtype=self.dtype,
            rows=self.batch,
            shared=self.shared,
            offline=self.offline,
        )

    @property
    def usage(self) -> Mapping[str, float]:
        """Queries asked, and tokens that the language model has read."""
        return {
            "requests": self._asked,
            "prompt_tokens": 0 if self._local is None else self._local.tokens,
        }

    def _answered(self, tasks: Sequence[Task], device: torch.device) -> list[Tensor]:
        assert self._local is not None
        found = []
        for task in tasks:
            scores, lengths = self._local.likelihoods(task, device)
            found.append(scores / lengths if self.normalise == "tokens" else scores)
            self._asked += len(scores)
        return found
