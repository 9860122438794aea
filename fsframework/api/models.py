"""Models: a method on a backbone, and the evaluation of anything that classifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fsframework._calls import seeded
from fsframework.api.components import Component
from fsframework.api.data import opened
from fsframework.api.experiments import describe
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.engine.cache.images import Pixels, store_of
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.evaluation import ImageSource, embedded
from fsframework.engine.learning.evaluation import evaluate as evaluate_model
from fsframework.engine.learning.model import (
    FewShotModel,
    base_classes_of,
    build_model,
    lowered,
    save_tensors,
)
from fsframework.engine.learning.scoring import Scorer
from fsframework.engine.learning.training import start_stages
from fsframework.engine.session import Session, resolve_device
from fsframework.engine.stages import Precision
from fsframework.errors import DataError, OptionError
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.method import FewShotMethod
from fsframework.values import (
    ArmOutcomes,
    Arms,
    ImagePool,
    IntArray,
    Outcomes,
    TaskSet,
    UInt8Array,
)

__all__ = [
    "Model",
    "evaluate",
    "model",
    "model_of",
    "network_of",
    "new_model",
    "resolve_device",
]

Classifier = Callable[[UInt8Array, IntArray, UInt8Array], Any]
"""Maps support images, their labels and query images of one task to scores of the queries."""

_USUAL_SIZE = 84

Trained = Literal["nothing", "backbone", "all"]
"""Which weights of a model are trained: none, those of its backbone only, or all."""


@dataclass(frozen=True, repr=False)
class Model:
    """A method on a backbone, with weights; what ``fsframework.model`` returns.

    Args:
        network: the two as one module.
        name: of the method.
        backbone: as users name it, such as ``timm:resnet50``.
        trained: ``nothing`` if all weights are random, ``backbone`` if those of the method
            itself are, else ``all``.
        source: run folder or file that its weights were read from; ``None`` for no run.
        precision: of the backbone, and of a method that runs the backbone itself.
    """

    network: FewShotModel
    name: str
    backbone: str
    trained: Trained = "all"
    source: Path | None = None
    precision: Precision = "fp32"

    def __repr__(self) -> str:
        device = self.network.mean.device
        return f"<Model: {self.name} with {self.backbone}, {self.network.size} pixels, on {device}>"

    @property
    def image_size(self) -> int:
        """Height and width of its images in pixels."""
        return self.network.size

    def save_weights(self, path: Path, n_base_classes: int = 0) -> None:
        """Write the weights as a run holds them, whole or not at all.

        Args:
            n_base_classes: classes that the method was trained on.
        """
        header: dict[str, object] = {"what": "weights", "n_base_classes": n_base_classes}
        save_tensors(path, self.network.state_dict(), header)

    @torch.no_grad()
    def embed(self, images: UInt8Array) -> npt.NDArray[np.float32]:
        """Map RGB images uint8 ``(n, H, W, 3)`` to what the method compares, ``(n, *embedded)``.

        Images of another size than the model's are resized.
        """
        pixels = _resized(np.asarray(images), self.network)
        return embedded(self.network, pixels, self.precision).cpu().numpy()

    def scores(
        self, support: UInt8Array, labels: npt.ArrayLike, query: UInt8Array
    ) -> npt.NDArray[np.float32]:
        """Score query images for each class of a support.

        Args:
            support: RGB images uint8 ``(n, H, W, 3)``, equally many per class.
            labels: int ``(n,)``, the class of each, 0 ... way - 1.
            query: RGB images uint8 ``(m, H, W, 3)``.

        Returns:
            float32 ``(m, way)``; higher is likelier.

        Raises:
            DataError: the classes of the support differ in their numbers of images.
        """
        ways, counts = np.unique(np.asarray(labels), return_counts=True)
        if len(set(counts.tolist())) > 1 or ways.tolist() != list(range(len(ways))):
            raise DataError(
                "labels must be 0 ... way - 1, each equally often; they occur "
                f"{dict(zip(ways.tolist(), counts.tolist(), strict=True))} times"
            )
        order = np.argsort(np.asarray(labels), kind="stable")
        shown = self.embed(np.asarray(support)[order])
        shown = shown.reshape(len(ways), int(counts[0]), *shown.shape[1:])
        return self.embedded_scores(shown, self.embed(query))

    @torch.no_grad()
    def embedded_scores(
        self, support: npt.NDArray[np.float32], query: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Score embedded queries, so that several supports can share one call of ``embed``.

        Args:
            support: float32 ``(way, shot, *embedded)``.
            query: float32 ``(m, *embedded)``.

        Returns:
            float32 ``(m, way)``; higher is likelier. Equal inputs give equal scores in any order
            of calls.

        Raises:
            PluginError: the method returns scores of another shape, or scores that are not finite.
        """
        self.network.eval()
        device = self.network.mean.device
        # Scoring embedded images is cheap enough for full precision.
        precision = "fp32" if self.network.has_features else self.precision
        shown, asked = (torch.from_numpy(part)[None].to(device) for part in (support, query))
        with seeded(0), lowered(device, precision):
            scores = Scorer(self.network.method)(shown, asked)[0]
        return scores.float().cpu().numpy()


def _resized(images: UInt8Array, network: FewShotModel) -> UInt8Array:
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[3] != 3:
        raise DataError(
            f"images must be uint8 of shape (n, H, W, 3), not {images.dtype} of {images.shape}"
        )
    size = network.size
    if images.shape[1:3] == (size, size):
        return images
    from PIL import Image

    how = Image.Resampling[network.interpolation.upper()]
    return np.stack([np.asarray(Image.fromarray(i).resize((size, size), how)) for i in images])


def model(
    method: Any,
    *,
    backbone: Any = "conv64f",
    image_size: int | None = None,
    device: str = "auto",
    seed: int = 0,
    offline: bool = False,
) -> Model:
    """Return a method on a backbone, ready for ``evaluate``; nothing is trained.

    Args:
        method: a name, a mapping of a name and options, a class or an instance.
        backbone: likewise; or any ``torch.nn.Module`` that maps images ``(n, 3, H, W)`` to
            vectors ``(n, D)`` or maps ``(n, C, h, w)``, used with its weights as they are. In a
            mapping, with the module as ``name``, ``mean`` and ``std`` are those of the pixels of
            each RGB channel, in 0..1; by default ImageNet's.
        image_size: height and width of the images in pixels; by default the backbone's.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        seed: of weights that are not pretrained.
        offline: make no network call for pretrained weights.

    Raises:
        FsfError: a name or an option is unknown, or weights are not available.

    >>> import fsframework as fsf
    >>> import torch
    >>> pixels = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    >>> fsf.model("ncc", backbone=pixels, image_size=16, device="cpu").image_size
    16
    """
    return model_of(
        describe(
            method=method,
            backbone=backbone,
            recipe="none",
            training={"epochs": 0},
            image_size=image_size,
            device=device,
            seed=seed,
            offline=offline,
            progress=False,
        ).experiment
    )


def new_model(
    method: Component,
    backbone: Component,
    image_size: int,
    n_base_classes: int = 0,
    *,
    device: str = "cpu",
) -> Model:
    """Return a model of two components, whose weights are about to be replaced.

    Args:
        n_base_classes: classes that the method is trained on.

    Raises:
        OptionError: the device is unknown or not available.
    """
    network = build_model(backbone, method, image_size, n_base_classes, 0, pretrained=False)
    network = network.to(resolve_device(device)).eval()
    return Model(network, method.name, backbone.called)


def model_of(experiment: Experiment) -> Model:
    """Return the model of an experiment, with the weights that it starts from.

    Nothing is trained: the weights are those of the run that the experiment names (``model`` or
    ``training.init_from``), else the backbone's pretrained ones, else random ones.

    Raises:
        DataError: weights are missing or do not fit.
        OptionError: the device is unknown or not available.
    """
    settings = experiment.settings
    size = settings.image_size or experiment.backbone.create().preprocessing.size
    network = network_of(experiment, size)
    sources = [stage.init_from for stage in experiment.stages if stage.init_from is not None]
    return Model(
        network.eval(),
        experiment.method.name,
        experiment.backbone.called,
        trained="all" if sources else _trained(network),
        source=sources[0] if sources else None,
        precision=settings.precision,
    )


def network_of(experiment: Experiment, size: int) -> FewShotModel:
    """Return the network of an experiment on its device; see ``model_of``.

    Args:
        size: height and width of its images in pixels.
    """
    settings = experiment.settings
    network = build_model(
        experiment.backbone,
        experiment.method,
        size,
        0 if settings.model is None else base_classes_of(settings.model),
        settings.training_seed,
        # The weights of a run replace the pretrained ones, whose file or hub is not needed.
        pretrained=settings.model is None,
        offline=settings.offline,
    )
    start_stages(network, experiment.stages, whole=settings.model is not None)
    return network.to(resolve_device(settings.device))


def _trained(network: FewShotModel) -> Trained:
    """Return which weights are trained in a model that does not start from a run."""
    if network.extractor.pretrained_on is None:
        return "nothing"
    held = {id(p) for p in network.extractor.parameters()}
    own = any(id(p) not in held for p in network.method.parameters())
    return "backbone" if own and network.method.learns_from != "nothing" else "all"


def evaluate(  # noqa: PLR0913 - an option each
    model: Run | Model | FewShotMethod | Classifier,
    tasks: Arms | Mapping[str, TaskSet] | TaskSet,
    data: Any,
    *,
    pool: ImagePool | None = None,
    image_size: int | None = None,
    query_batch: str = "task",
    device: str = "auto",
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
) -> ArmOutcomes:
    """Let a model answer the queries of tasks.

    Args:
        model: a run, a model of ``fsframework.model``, or any callable ``(support images,
            support labels, query images) -> scores``. A callable gets one task per call: RGB
            images uint8 ``(n, H, W, 3)``, labels int64 ``0 ... way - 1``; it returns finite
            scores ``(queries, way)``, columns in the order of the labels, higher is likelier. The
            order of the queries reveals nothing about their classes.
        tasks: what ``fsframework.draw`` returned, or task sets by name, or one task set.
        data: that the tasks were drawn from: what ``fsframework.dataset`` takes.
        pool: that the tasks were drawn from, if it is not a split of the data.
        image_size: height and width of the images that a callable gets, in pixels; by default
            the data set's own size, else 84.
        query_batch: ``task`` passes a model all queries of a task together, ``class`` those of one
            class at a time.
        device: that a run's model computes on.
        progress: whether progress is shown on standard error.

    Returns:
        Outcomes by name of the arm, with their tasks.

    Raises:
        DataError: the tasks are not of these data, or the scores are malformed.

    >>> import numpy as np
    >>> import fsframework as fsf
    >>> data = fsf.dataset("planted", n_per_class=8, size=16)
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=10, way=2, shot=1, queries=2)
    >>> def nearest(support, labels, query):
    ...     apart = query[:, None].astype(float) - support[None]
    ...     return -np.abs(apart).sum(axis=(2, 3, 4))
    >>> fsf.evaluate(nearest, arms, data, progress=False)["random"].predictions.shape
    (10, 2, 2)
    """
    session = open_session(runs_dir=runs_dir, cache_dir=cache_dir, progress=progress)
    arms = _arms_of(tasks)
    component, source = opened(session.registry, data)
    if isinstance(model, Run):
        model = model.model(device=device)
    if isinstance(model, FewShotMethod):
        raise OptionError(
            f"{type(model).__name__} needs a backbone: give "
            f"fsframework.model({type(model).__name__}(...), backbone=...)"
        )
    size, how = image_size or source.native_size or _USUAL_SIZE, "bilinear"
    if isinstance(model, Model):
        size, how = model.network.size, model.network.interpolation
    store = store_of(component, source, size, how, "exact", session.workspace)
    rows = _rows(arms, source, pool)
    used = np.unique(rows[np.unique(np.concatenate([t.images.ravel() for t in arms.values()]))])
    store.fill(used, "fatal", "images", session.reporter)
    pixels = Pixels(store, rows, "", session.reporter)
    outcomes = {}
    for arm, chosen in arms.items():
        if isinstance(model, Model):
            found = ImageSource.computed(model.network, pixels, chosen)
            batch: Any = query_batch
            outcomes[arm] = evaluate_model(
                model.network, chosen, found,
                label=f"{arm} tasks", reporter=session.reporter, query_batch=batch,
            )  # fmt: skip
        else:
            outcomes[arm] = _asked(model, chosen, pixels, f"{arm} tasks", session)
    return ArmOutcomes(outcomes, arms)


def _arms_of(tasks: Arms | Mapping[str, TaskSet] | TaskSet) -> Arms:
    if isinstance(tasks, Arms):
        return tasks
    if isinstance(tasks, TaskSet):
        return Arms({tasks.arm or tasks.sampler: tasks})
    return Arms(tasks)


def _rows(arms: Arms, source: Dataset, pool: ImagePool | None) -> IntArray:
    """Return the index in the data set of each image of the pool that tasks were drawn from."""
    digests = {tasks.key_digest for tasks in arms.values()}
    if len(digests) > 1:
        raise DataError("the arms were drawn from different pools; evaluate them one by one")
    (digest,) = digests
    if pool is None:
        pool = _split_with(digest, source)
    for tasks in arms.values():
        tasks.verify(pool)
    position = {key: i for i, key in enumerate(source.keys)}
    missing = [key for key in pool.keys if key not in position]
    if missing:
        raise DataError(f"the pool has {missing[0]!r}, which is not an image of the data set")
    return np.array([position[key] for key in pool.keys], dtype=np.int64)


def _split_with(digest: str, source: Dataset) -> ImagePool:
    """Return the split of a data set whose keys have a digest."""
    for split in (*source.splits, "all"):
        try:
            found = source.pool(split)
        except DataError:  # a split without an image
            continue
        if found.key_digest == digest:
            return found
    raise DataError(
        "the tasks were not drawn from a split of these data (their image-key digest is "
        f"{digest[:12]}); give the pool that they were drawn from"
    )


def _asked(
    model: Classifier, tasks: TaskSet, pixels: Pixels, label: str, session: Session
) -> Outcomes:
    """Ask a callable, task by task."""
    count, way, n_query = tasks.query.shape
    predictions = np.empty(tasks.query.shape, np.int16)
    labels = np.repeat(np.arange(way), tasks.n_shot)
    with session.reporter.stage(label, count) as advance:
        for t in range(count):
            # The position of a query must not reveal its class.
            order = np.random.default_rng([t, way * n_query]).permutation(way * n_query)
            scores = _checked(
                model(
                    pixels[tasks.support[t].ravel()],
                    labels.copy(),
                    pixels[tasks.query[t].ravel()[order]],
                ),
                (way * n_query, way),
                t,
            )
            answers = np.empty(way * n_query, np.int16)
            answers[order] = scores.argmax(axis=1)
            predictions[t] = answers.reshape(way, n_query)
            advance(1)
    return Outcomes.of(tasks, predictions)


def _checked(scores: Any, expected: tuple[int, int], task: int) -> npt.NDArray[np.float64]:
    if isinstance(scores, Tensor):
        scores = scores.detach().cpu()
    found = np.asarray(scores)
    if found.shape != expected:
        raise DataError(
            f"task {task}: the model returned scores of shape {found.shape}; they must be of shape "
            f"{expected}: a row per query, a column per class"
        )
    if found.dtype.kind not in "fiu" or not np.isfinite(found).all():
        raise DataError(f"task {task}: the model's scores must be finite real numbers")
    return found.astype(np.float64)
