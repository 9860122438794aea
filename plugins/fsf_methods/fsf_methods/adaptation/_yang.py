"""Few-shot classification with contrastive learning."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.adaptation._views_contrast import LocalContrast, distance_scaled, views_contrast
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    OptionError,
    ViewMaker,
    check_above,
    check_at_least,
)

__all__ = ["ContrastiveCentroids"]


class ContrastiveCentroids(FewShotMethod):
    """Nearest centroids of vectors that are pretrained by classification and contrast of classes.

    Source: Yang, Wang and Zhu 2022, "Few-Shot Classification with Contrastive Learning" (ECCV),
    section 3; "Yang et al." of MetaCoCo's tables. Scores are negative squared Euclidean distances
    to the class means, over the temperature ``scale``.

    The paper trains twice. Here a step on batches is its pretraining: the cross-entropy of the
    base classes plus ``weight`` times the global supervised contrastive loss of projected vectors,
    whose positives are the other images of the class. A step on episodes is its meta-training: the
    cross-entropy of the queries::

        [[training.stages]]
        learns_from = "batches"
        [[training.stages]]
        learns_from = "episodes"

    Both use two views of each image where there are ``views``, as in the paper; without, an image
    is shown once, which takes half of the time. The pretraining then classifies both views, which
    are further positives of each other, and adds the losses that find the other view of an image
    among those of all others: by projected vectors (``global_weight``), and by maps against vectors
    and maps against maps aligned by attention (``local_weight``). The meta-training classifies the
    queries of each view by the centroids of each view (cross-view episodes), and adds
    ``episode_weight`` times the distance-scaled contrastive loss of projected queries and class
    means of both views.

    The paper brings the class means of a task together by attention first, as FEAT does; with
    ``attention`` they are added what one head makes of all of them. It starts from adding nothing,
    so that the pretraining, which does not train it, is validated on plain class means. One head
    without normalisation and this start are ours.

    The defaults are those of supervised contrastive learning (Khosla et al. 2020) and ours; the
    paper's values were not at hand and are not checked, nor is its formula of the distance-scaled
    loss: see ``distance_scaled``.

    Args:
        views: makes two views of an image; ``None`` for none.
        weight: of the supervised contrastive loss, at least 0.
        global_weight: of the loss of vectors of the views, at least 0.
        local_weight: of the losses of maps of the views, at least 0.
        episode_weight: of the distance-scaled contrastive loss of episodes of views, at least 0.
        attention: let the class means of a task attend to each other.
        temperature: of the contrastive losses, above 0.
        width: length of the projected vectors, at least 1.
        scale: divides squared distances, above 0; ``None`` for the length of the vectors.

    Raises:
        OptionError: an option is outside its range.
    """

    learns_from = "both"

    def __init__(  # noqa: PLR0913
        self,
        *,
        views: ViewMaker | None = None,
        weight: float = 1.0,
        global_weight: float = 1.0,
        local_weight: float = 1.0,
        episode_weight: float = 0.01,
        attention: bool = False,
        temperature: float = 0.1,
        width: int = 128,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        check_at_least(0, weight=weight, global_weight=global_weight, local_weight=local_weight)
        check_at_least(0, episode_weight=episode_weight)
        check_at_least(1, width=width)
        check_above(0, temperature=temperature)
        if scale is not None:
            check_above(0, scale=scale)
        if views is not None and views.n_views != 2:
            raise OptionError(
                f"views must make two views of an image, but {type(views).__name__} makes "
                f"{views.n_views}"
            )
        self.views = views
        self.trains_on_images = views is not None
        self.weight = weight
        self.global_weight = global_weight
        self.local_weight = local_weight
        self.episode_weight = episode_weight
        self.attention = attention
        self.attend: Attention | None = None
        self.temperature = temperature
        self.width = width
        self.scale = scale

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the projection of vectors ``(D,)``, and the classifier if there are classes."""
        (size,) = item_shape
        self.project = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, self.width))
        self.classify = nn.Linear(size, n_base_classes) if n_base_classes else None
        if self.attention:
            self.attend = Attention(size)
        if self.views is not None:
            self.backbone = backbone
            self.local = LocalContrast(_channels(backbone), self.width, self.temperature)

    def class_logits(self, items: Tensor) -> Tensor:
        """Score vectors ``(n, D)`` for the base classes, float ``(n, n_base_classes)``."""
        if self.classify is None:
            return super().class_logits(items)
        logits: Tensor = self.classify(items)
        return logits

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return negative squared distances to class means, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        with torch.autocast(query.device.type, enabled=False):
            dtype = torch.promote_types(query.dtype, torch.float32)
            support, query = support.to(dtype), query.to(dtype)
            means = support.sum(dim=2) / support.shape[2]
            if self.attend is not None:
                means = self.attend(means)
            # Rows as long as the queries are faster than rows as short as the ways.
            lengths = torch.linalg.vector_norm(query, dim=2)[:, None].square()
            norms = lengths + means.square().sum(dim=2)[:, :, None]
            near = torch.baddbmm(norms, means, query.mT, beta=-1, alpha=2).mT
            return near / (self.scale or support.shape[-1])

    def loss(self, batch: Batch) -> Tensor:
        """Return the losses of batch and episodes, whichever the step has.

        Raises:
            OptionError: the step has neither.
        """
        if batch.classes is None and batch.support is None:
            raise OptionError(
                "ContrastiveCentroids learns from batches or episodes; this step has neither"
            )
        # Views of a step may also be those of another method that this one is in.
        if self.views is not None and batch.views is not None:
            losses = self._losses_of_views(batch, batch.views)
        else:
            losses = [] if batch.support is None else [super().loss(batch)]
            if batch.items is not None and batch.classes is not None:
                losses += self._losses_of_classes(
                    batch.items, self.project(batch.items), batch.classes
                )
        return torch.stack(losses).sum()

    def _losses_of_classes(
        self, vectors: Tensor, projected: Tensor, classes: Tensor
    ) -> list[Tensor]:
        of_classes = functional.cross_entropy(self.class_logits(vectors), classes)
        contrast = supervised_contrast(projected.float(), classes, self.temperature)
        return [of_classes, self.weight * contrast]

    def _losses_of_views(self, batch: Batch, views: Tensor) -> list[Tensor]:
        """Return the losses of a step's views ``(n, 2, 3, H, W)``."""
        maps = self.backbone(views.flatten(0, 1))
        # One row per image, one column per view.
        maps = maps.reshape(len(views), 2, *maps.shape[1:])
        vectors = self.backbone.vectors(maps.flatten(0, 1)).reshape(len(views), 2, -1)
        losses, n = list[Tensor](), 0
        if batch.support is not None and batch.query is not None:
            n = batch.support.shape[:3].numel() + batch.query.shape[:2].numel()
            losses.append(self._across_views(batch, vectors[:n]))
        if batch.classes is not None:
            own = vectors[n:].transpose(0, 1).flatten(0, 1)
            projected = self.project(own)
            losses += self._losses_of_classes(own, projected, batch.classes.repeat(2))
            similar = functional.normalize(projected.float(), dim=1)
            alike = views_contrast(similar @ similar.mT, self.temperature)
            losses.append(self.global_weight * alike)
            of_maps = self.local(maps[n:].transpose(0, 1).flatten(0, 1), projected)
            losses.append(self.local_weight * of_maps)
        return losses

    def _across_views(self, batch: Batch, vectors: Tensor) -> Tensor:
        """Return the loss of episodes of two views.

        It is the mean cross-entropy of both views of the queries by both of the support, plus the
        weighted distance-scaled contrastive loss.

        Args:
            vectors: ``(m, 2, D)``, of the views of the supports, then of the queries.
        """
        assert batch.support is not None
        assert batch.query_labels is not None
        shape, n_support = batch.support.shape[:3], batch.support.shape[:3].numel()
        tasks = len(batch.query_labels)
        support = vectors[:n_support].reshape(*shape, 2, -1)
        query = vectors[n_support:].reshape(tasks, -1, 2, vectors.shape[2])
        # The queries of both views side by side, by the support of one view and of the other.
        both = query.transpose(1, 2).flatten(1, 2)
        labels = batch.query_labels.repeat(1, 2)
        losses = [
            functional.cross_entropy(
                self.scores(support[:, :, :, v], both).flatten(0, 1), labels.flatten()
            )
            for v in range(2)
        ]
        means = support.mean(dim=2).transpose(1, 2)
        queries, means = self.project(both), self.project(means)
        with torch.autocast(vectors.device.type, enabled=False):
            contrast = distance_scaled(queries.float(), labels, means.float(), self.temperature)
        return torch.stack(losses).mean() + self.episode_weight * contrast


class Attention(nn.Module):
    """Adds to each vector of a set what attention makes of all of them; at first nothing.

    Args:
        size: length of the vectors.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(size, 3 * size, bias=False)
        self.output = nn.Linear(size, size)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map sets of vectors ``(tasks, n, D)`` to sets of the same shape."""
        asked, keys, values = self.inputs(vectors).chunk(3, dim=2)
        found = functional.scaled_dot_product_attention(asked, keys, values)
        added: Tensor = vectors + self.output(found)
        return added


def _channels(backbone: Backbone) -> int:
    """Return the channels of a backbone's maps."""
    size, training = backbone.preprocessing.size, backbone.training
    with torch.no_grad():
        maps: Tensor = backbone.eval()(torch.zeros(1, 3, size, size))
    backbone.train(training)
    return maps.shape[1]


def supervised_contrast(vectors: Tensor, classes: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of vectors ``(n, E)`` of classes ``(n,)``.

    The mean, over the vectors that have others of their class, of the mean over these of the
    negative log-softmax of cosines over the temperature, among all vectors but itself (Khosla et
    al. 2020, equation 2). 0 if no class occurs twice.
    """
    units = functional.normalize(vectors, dim=1)
    own = torch.eye(len(units), dtype=units.dtype, device=units.device)
    cosines = units @ units.mT / temperature
    lowest = torch.finfo(units.dtype).min
    log_odds = cosines - (cosines + own * lowest).logsumexp(dim=1, keepdim=True)
    friends = (classes[:, None] == classes).to(units.dtype) - own
    count = friends.sum(dim=1)
    each = -(log_odds * friends).sum(dim=1) / count.clamp(min=1)
    return each.sum() / (count > 0).sum().clamp(min=1)
