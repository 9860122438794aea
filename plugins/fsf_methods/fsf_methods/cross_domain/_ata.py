"""Adversarial task augmentation."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.cross_domain._bases import kept_buffers, need_episodes, need_no_views
from fsframework.interfaces import Backbone, Batch, FewShotMethod, MethodWrapper, OptionError

__all__ = ["ATA"]


class ATA(MethodWrapper):
    """Train another method on tasks whose images are changed so that its loss rises.

    Source: Wang and Deng 2021, "Cross-Domain Few-Shot Classification via Adversarial Task
    Augmentation" (IJCAI). The worst case over tasks T near the tasks T_0 of the source domain,
    min over theta of E[sup over T of L(theta; T)], is approached by gradient ascent that stops
    early: T_0 passes, with a probability, one random convolution for all of its images, support and
    queries, whose kernel has a random size and weights of Xavier's normal distribution; then
    T_i = T_(i-1) + lr * grad_T L(theta; T_(i-1)) for a number of steps; theta descends on
    L(theta; T) of the last task. L is the base's own loss. In evaluation nothing is changed, and
    features are computed once per image.

    What is left open here is decided so: images are those normalised for the backbone, and a
    changed one is not clipped to the range of pixel values; with several tasks per step, each
    ascends its own share of the loss; running statistics and other buffers do not see the tasks on
    the way to the last one. The authors' code ascends in evaluation mode; here BatchNorm uses the
    statistics of the batch, as in the step that follows.

    The defaults are those of the authors' code, with which its README trains GNN; for TPN it has an
    ``lr`` of 20 and a ``probability`` of 0.4 (their ``prob`` is that of an unchanged task).

    Args:
        base: the method that is trained, on episodes.
        steps: steps of the ascent, at least 0.
        lr: learning rate of the ascent, above 0; a loss averaged over queries has small gradients
            with respect to single pixels.
        probability: of a random convolution of a task, from 0 to 1.
        kernel_sizes: sides of the kernels that are drawn from, odd.

    Raises:
        OptionError: an option is outside its range, the base does not learn from episodes, or it
            changes images itself.
    """

    kernel_sides: Tensor

    def __init__(
        self,
        *,
        base: FewShotMethod,
        steps: int = 5,
        lr: float = 80.0,
        probability: float = 0.5,
        kernel_sizes: tuple[int, ...] = (1, 3, 5, 7, 11, 15),
    ) -> None:
        super().__init__(base=base)
        need_episodes(base)
        need_no_views(base)
        if base.trains_on_images:
            raise OptionError(
                "base must be trained on what it consumes, but "
                f"{type(base).__name__} is trained on images"
            )
        if steps < 0:
            raise OptionError(f"steps must be at least 0, got {steps}")
        if not 0 < lr < float("inf"):
            raise OptionError(f"lr must be above 0 and finite, got {lr}")
        if not 0 <= probability <= 1:
            raise OptionError(f"probability must be from 0 to 1, got {probability}")
        if not kernel_sizes or any(side < 1 or side % 2 == 0 for side in kernel_sizes):
            raise OptionError(f"kernel_sizes must be odd and above 0, got {kernel_sizes}")
        self.steps = steps
        self.lr = lr
        self.probability = probability
        self.kernel_sizes = tuple(kernel_sizes)
        self.trains_on_images = base.consumes != "images"
        self.register_buffer("kernel_sides", torch.tensor(kernel_sizes), persistent=False)

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base; store the backbone unless the base stores it."""
        if self.trains_on_images:
            self.backbone = backbone
        super().build(item_shape, n_base_classes, backbone)

    def loss(self, batch: Batch) -> Tensor:
        """Return the base's loss of the changed tasks."""
        support, query = batch.support, batch.query
        if support is None or query is None:
            raise OptionError("ATA learns from episodes, but this step has none")
        with kept_buffers(self):
            changed = self._ascended(batch, torch.cat([support.flatten(1, 2), query], dim=1))
        return self._loss_of(batch, changed)

    def _ascended(self, batch: Batch, images: Tensor) -> Tensor:
        """Return images ``(tasks, n, 3, H, W)`` at which the loss is higher, the support first."""
        tasks = len(images)
        images = self._convolved(images).detach()
        for _ in range(self.steps):
            images.requires_grad_()
            # Times the tasks, since the loss is their mean.
            loss = tasks * self._loss_of(batch, images)
            [gradient] = torch.autograd.grad(loss, images)
            images = (images + self.lr * gradient).detach()
        return images

    def _convolved(self, images: Tensor) -> Tensor:
        """Convolve the images of some tasks, ``(tasks, n, 3, H, W)``, each task with one kernel."""
        tasks, device = len(images), images.device
        side, colours = max(self.kernel_sizes), images.shape[2]
        drawn = torch.randint(len(self.kernel_sizes), (tasks,), device=device)
        sides = self.kernel_sides[drawn][:, None, None, None, None]
        # A smaller kernel is a large one with zeros around it, so all tasks take one convolution.
        offset = (torch.arange(side, device=device) - side // 2).abs()
        inside = torch.maximum(offset[:, None], offset) <= sides // 2
        deviation = (2 / (2 * colours * sides**2)) ** 0.5
        kernels = torch.randn(tasks, colours, colours, side, side, device=device)
        kernels = (kernels * deviation * inside).to(images.dtype)
        found = functional.conv2d(
            images.transpose(0, 1).flatten(1, 2), kernels.flatten(0, 1), padding="same",
            groups=tasks,
        )  # fmt: skip
        found = found.unflatten(1, (tasks, colours)).transpose(0, 1).to(images.dtype)
        chosen = torch.rand(tasks, device=device) < self.probability
        return torch.where(chosen[:, None, None, None, None], found, images)

    def _loss_of(self, batch: Batch, images: Tensor) -> Tensor:
        """Return the base's loss of a batch with other images of its tasks."""
        assert batch.support is not None
        shape = batch.support.shape[:3]
        tasks, n = images.shape[:2]
        flat = [images.flatten(0, 1)]
        if batch.items is not None:
            flat.append(batch.items)
        items = self._encoded(torch.cat(flat))
        own = items[: tasks * n].unflatten(0, (tasks, n))
        m = shape[1:].numel()
        return self.base.loss(
            dataclasses.replace(
                batch,
                support=own[:, :m].unflatten(1, shape[1:]),
                query=own[:, m:],
                items=None if batch.items is None else items[tasks * n :],
            )
        )

    def _encoded(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to the items that the base consumes."""
        if not self.trains_on_images:
            return images
        if self.consumes == "vectors":
            return self.backbone.encode(images)
        maps: Tensor = self.backbone(images)
        return maps
