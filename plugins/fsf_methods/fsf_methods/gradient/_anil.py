"""Almost no inner loop."""

from __future__ import annotations

from torch import Tensor

from fsf_methods.gradient._head import Head, HeadKind, adapted_scores, check_head, check_ways
from fsframework.interfaces import Backbone, FewShotMethod, check_above, check_at_least

__all__ = ["ANIL"]


class ANIL(FewShotMethod):
    """Learn features, and a head from which a few gradient steps on the support solve a task.

    Source: Raghu, Raghu, Bengio and Vinyals 2020, "Rapid Learning or Feature Reuse? Towards
    Understanding the Effectiveness of MAML", section 4: MAML whose inner steps adapt only the
    linear head. The backbone's features are the same for every task, so each image is embedded only
    once; in evaluation their BatchNorm uses the running statistics.

    Args:
        n_way: ways of the tasks, at least 2, that a learned head has weights for; it refuses
            others. A shared head accepts any number, and its ``n_way`` becomes ``None``.
        head: ``learned`` starts every way from its own weights, as in the paper; ``shared`` starts
            all from one vector, so the order of the ways does not matter. Source of the second: Ye
            and Chao 2022, "How to Train Your MAML to Excel in Few-Shot Classification", section 5.
        inner_lr: learning rate of the inner steps, above 0; long vectors need a smaller one, such
            as 0.01 for the 1600 numbers of a Conv-64F map.
        train_steps: inner steps in training, at least 1.
        test_steps: inner steps in evaluation, at least 1.
        first_order: treat the inner gradients as constants in training.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        n_way: int | None = 5,
        head: HeadKind = "learned",
        inner_lr: float = 0.05,
        train_steps: int = 5,
        test_steps: int = 10,
        first_order: bool = False,
    ) -> None:
        super().__init__()
        check_head(head, n_way)
        check_above(0, inner_lr=inner_lr)
        check_at_least(1, train_steps=train_steps, test_steps=test_steps)
        self.n_way = n_way if head == "learned" else None
        self.head = head
        self.inner_lr = inner_lr
        self.train_steps = train_steps
        self.test_steps = test_steps
        self.first_order = first_order

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the head for vectors ``(D,)``."""
        del n_base_classes, backbone
        self.classify = Head(item_shape[0], self.n_way)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the adapted heads, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.

        Raises:
            OptionError: the head is learned for another number of ways.
        """
        check_ways(self.n_way, support)
        return adapted_scores(
            self.classify,
            support,
            query,
            rate=self.inner_lr,
            steps=self.train_steps if self.training else self.test_steps,
            second_order=not self.first_order,
        )
