"""Models: a method on a backbone, and the evaluation of anything that classifies."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fsframework._calls import Called, entered, item, seeded
from fsframework.api.components import Component, layer
from fsframework.api.data import opened
from fsframework.api.experiments import describe
from fsframework.api.running import Run
from fsframework.api.session import open_session
from fsframework.components.resolution import resolve_settings
from fsframework.engine.cache.images import ImageStore, Pixels
from fsframework.engine.configuration import Experiment
from fsframework.engine.learning.evaluation import (
    Classifier,
    ImageSource,
    ModelClassifier,
    embedded,
)
from fsframework.engine.learning.evaluation import evaluate as evaluate_tasks
from fsframework.engine.learning.knowledge import Knowledge, embedded_texts
from fsframework.engine.learning.model import (
    FewShotModel,
    base_classes_of,
    build_model,
    lowered,
    save_weights,
)
from fsframework.engine.learning.scoring import Scorer
from fsframework.engine.learning.training import start_stages
from fsframework.engine.options import Settings, given_tree
from fsframework.engine.progress import Reporter
from fsframework.engine.session import resolve_device
from fsframework.engine.stages import Precision
from fsframework.errors import DataError, OptionError, argument
from fsframework.interfaces.dataset import Dataset, Decoding
from fsframework.interfaces.method import FewShotMethod, Known
from fsframework.values import (
    ArmOutcomes,
    Arms,
    ImagePool,
    IntArray,
    QueryBatch,
    TaskSet,
    Texts,
    UInt8Array,
)

if TYPE_CHECKING:
    from fsframework.api import arguments

__all__ = [
    "Model",
    "evaluate",
    "model",
    "model_of",
    "network_of",
    "new_model",
    "resolve_device",
    "save_weights",
]

Function = Callable[[UInt8Array, npt.NDArray[np.int64], UInt8Array], npt.ArrayLike | Tensor]
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

    @entered()
    @torch.no_grad()
    def embed(self, images: UInt8Array) -> npt.NDArray[np.float32]:
        """Map RGB images uint8 ``(n, H, W, 3)`` to what the method compares, ``(n, *embedded)``.

        Images of another size than the model's are resized.
        """
        pixels = _resized(np.asarray(images), self.network)
        return embedded(self.network, pixels, self.precision).cpu().numpy()

    def scores(
        self,
        support: UInt8Array,
        labels: npt.ArrayLike,
        query: UInt8Array,
        names: Sequence[str] = (),
    ) -> npt.NDArray[np.float32]:
        """Score query images for each class of a support.

        Args:
            support: RGB images uint8 ``(n, H, W, 3)``, equally many per class.
            labels: int ``(n,)``, the class of each, 0 ... way - 1.
            query: RGB images uint8 ``(m, H, W, 3)``.
            names: of the classes, for a method that needs them.

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
        return self.embedded_scores(shown, self.embed(query), names)

    @entered()
    @torch.no_grad()
    def embedded_scores(
        self,
        support: npt.NDArray[np.float32],
        query: npt.NDArray[np.float32],
        names: Sequence[str] = (),
    ) -> npt.NDArray[np.float32]:
        """Score embedded queries, so that several supports can share one call of ``embed``.

        Args:
            support: float32 ``(way, shot, *embedded)``.
            query: float32 ``(m, *embedded)``.
            names: of the classes, for a method that needs them.

        Returns:
            float32 ``(m, way)``; higher is likelier. Equal inputs give equal scores in any order
            of calls.

        Raises:
            OptionError: the method needs names, and none are given; or words of images.
            PluginError: the method returns scores of another shape, or scores that are not finite.
        """
        known, method = Known(), self.network.eval().method
        if method.needs_words or (method.needs_class_names and len(names) != len(support)):
            what = "words of its images" if method.needs_words else "name of each class"
            raise OptionError(f"{self.name} needs the {what} and was given {len(names)} names")
        if method.needs_class_names:
            known = Known(embedded_texts(self.network, method.embed_names, names)[None])
        device = self.network.mean.device
        # Scoring embedded images is cheap enough for full precision.
        precision = "fp32" if self.network.has_features else self.precision
        shown, asked = (torch.from_numpy(part)[None].to(device) for part in (support, query))
        with seeded(0), lowered(device, precision):
            scores = Scorer(method)(shown, asked, known)[0]
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
    method: arguments.Method,
    *,
    backbone: arguments.Backbone = "conv64f",
    image_size: int | None = None,
    device: str = "auto",
    seed: int = 0,
    offline: bool = False,
    **options: Any,
) -> Model:
    """Return a method on a backbone, ready for ``evaluate``; nothing is trained.

    Args:
        method: a name, a mapping of a name and options, a class or an instance.
        backbone: likewise; or any ``torch.nn.Module`` that maps images ``(n, 3, H, W)`` to
            vectors ``(n, D)`` or maps ``(n, C, h, w)``, used with its weights as they are: also a
            model of timm, torchvision or Transformers, and a tower of open_clip.
        image_size: height and width of the images in pixels; by default the backbone's.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        seed: of weights that are not pretrained.
        offline: make no network call for pretrained weights.
        **options: of the backbone. Those of a module are ``size``, its images' height and width in
            pixels, and ``mean`` and ``std`` of their RGB channels, in 0..1; by default its own
            where it has them, else ImageNet's.

    Raises:
        FsfError: a name or an option is unknown, or weights are not available.

    >>> import fsframework as fsf
    >>> import torch
    >>> pixels = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    >>> fsf.model("ncc", backbone=pixels, size=16, std=(1, 1, 1), device="cpu").image_size
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
            **{f"backbone.{name}": value for name, value in options.items()},
        ).experiment
    )


@entered()
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
    network = build_model(backbone, method, image_size, n_base_classes)
    network = network.to(resolve_device(device)).eval()
    return Model(network, method.name, backbone.called)


@entered()
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
    backbone, method, seed = experiment.backbone, experiment.method, settings.training_seed
    n_base_classes = 0 if settings.model is None else base_classes_of(settings.model)
    network = build_model(backbone, method, size, n_base_classes, seed, settings)
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
    model: Run | Model | Function,
    tasks: Arms | Mapping[str, TaskSet] | TaskSet,
    data: arguments.Dataset,
    *,
    pool: ImagePool | None = None,
    image_size: int | None = None,
    query_batch: QueryBatch = "task",
    device: str = "auto",
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
) -> ArmOutcomes:
    """Let a model answer the queries of tasks.

    Args:
        model: a run, whose images are decoded as its own were, a model of
            ``fsframework.model``, or any callable ``(support images, support labels, query
            images) -> scores``. A callable gets one task per call: RGB
            images uint8 ``(n, H, W, 3)``, labels int64 ``0 ... way - 1``; it returns finite
            scores ``(queries, way)``, columns in the order of the labels, higher is likelier. The
            order of the queries reveals nothing about their classes. Some tasks are asked again,
            and in another order, and a callable that then answers otherwise is refused; one whose
            answers depend on the other queries has a true attribute ``transductive``.
        tasks: what ``fsframework.draw`` returned, or task sets by name, or one task set.
        data: that the tasks were drawn from: what ``fsframework.dataset`` takes.
        pool: that the tasks were drawn from, if it is not a split of the data, or the method needs
            its words.
        image_size: height and width of the images that a callable gets, in pixels; by default
            the data set's own size, else 84. A model has a size of its own.
        query_batch: ``task`` passes a model all queries of a task together, ``class`` those of one
            class at a time.
        device: that a run's model computes on.
        progress: whether progress is shown on standard error.

    Returns:
        Outcomes by name of the arm, with their tasks. The ``notes`` of each are what a reader must
        know, such as that many best scores are tied.

    Raises:
        DataError: the tasks are not of these data, or the scores are malformed.
        OptionError: an argument is of the wrong kind or out of range; the message names it.
        PluginError: answers depend on the order of the queries, or change from call to call.

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
    given = {"image_size": image_size, "query_batch": query_batch, "device": device}
    settings, _ = resolve_settings(Settings, given_tree(given, "call"), "settings")
    arms = _arms_of(tasks)
    if not isinstance(pool, ImagePool | None):
        raise OptionError(f"pool must be what fsframework.pool returned, not {_called(pool)}")
    given_data = layer(data, "call") if isinstance(data, Mapping) else data
    component, source = opened(session.registry, given_data)
    found = model.model(device=settings.device) if isinstance(model, Run) else model
    resolve_device(settings.device)  # so that an unknown one is refused
    if isinstance(found, Model):
        size, how = found.network.size, found.network.interpolation
        if settings.image_size not in (None, size):
            asked = argument("image_size", settings.image_size)
            raise OptionError(f"{asked}: the model has its own size, {size}; leave this out")
    else:
        _check_function(found)
        size, how = settings.image_size or source.native_size or _USUAL_SIZE, "bilinear"
    scaled = isinstance(model, Run) and model.record.settings.get("decoding") == "scaled"
    decoding: Decoding = "scaled" if scaled else "exact"
    store = ImageStore(source, component, size, how, decoding, session.workspace)
    pool, rows = _rows(arms, source, pool)
    # Of all arms, so that an image of several is decoded and embedded once.
    used = np.unique(np.concatenate([chosen.images.ravel() for chosen in arms.values()]))
    store.fill(np.unique(rows[used]), "fatal", "images", session.reporter)
    pixels = Pixels(store, rows, "", session.reporter)
    answering: dict[str, Classifier]
    if isinstance(found, Model):
        images = ImageSource.computed(found.network, pixels, used, found.precision)
        told = model.record.class_names if isinstance(model, Run) else {}
        known = Knowledge(found.network, pool, [told.get(name, name) for name in pool.class_names])
        answering = dict.fromkeys(arms, ModelClassifier(found.network, images, known))
    else:
        timed = _told_time(sum(map(len, arms.values())), session.reporter)
        answering = {arm: _FunctionClassifier(found, pixels, arm, timed) for arm in arms}
    outcomes = {}
    for arm, chosen in arms.items():
        outcomes[arm] = evaluate_tasks(
            answering[arm], chosen,
            label=f"{arm} tasks", reporter=session.reporter, query_batch=settings.query_batch,
        )  # fmt: skip
    return ArmOutcomes(outcomes, arms)


def _called(value: Any) -> str:
    """Return how messages name a value of the wrong kind."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, (str, int, float)):
        return repr(value)[:80]
    facts = [getattr(value, name, "") for name in ("dtype", "layout", "device")]
    of = " ".join(str(fact).removeprefix("torch.") for fact in facts if str(fact))
    return f"a value of the type {type(value).__name__}" + (f" ({of})" if of else "")


def _check_function(model: Any) -> None:
    """Check that a model can be called with a task.

    Raises:
        OptionError: it cannot; the message says what to give instead.
    """
    cls = model if isinstance(model, type) else type(model)
    name = cls.__name__
    if issubclass(cls, FewShotMethod):
        raise OptionError(
            f"{name} needs a backbone: give fsframework.model({name}(...), backbone=...)"
        )
    if issubclass(cls, nn.Module):
        raise OptionError(
            f"model is the PyTorch module {name}, which embeds images but knows no tasks: "
            'give fsframework.model("ncc", backbone=module), or another method in place of ncc'
        )
    if hasattr(cls, "fit") and hasattr(cls, "predict") and (cls is model or not callable(model)):
        raise OptionError(
            f"model is the estimator {name}, which is to be fitted to each task: give a "
            "function around it",
            picture=_AROUND_ESTIMATOR,
        )
    try:
        if cls is model:
            raise TypeError
        inspect.signature(model).bind(None, None, None)
    except TypeError:
        raise OptionError(
            "model must be a run, what fsframework.model returned, or a function of support "
            f"images, support labels and query images that returns scores, not {_called(model)}"
        ) from None
    except ValueError:  # a function of C, whose arguments are not known
        pass


_AROUND_ESTIMATOR = """\
def classifier(support, labels, query):
    fitted = sklearn.base.clone(estimator).fit(support.reshape(len(support), -1), labels)
    return fitted.predict_proba(query.reshape(len(query), -1))"""


def _arms_of(tasks: Arms | Mapping[str, TaskSet] | TaskSet) -> Arms:
    if isinstance(tasks, TaskSet):
        tasks = {tasks.arm or tasks.sampler: tasks}
    wanted = "tasks must be what fsframework.draw returned, task sets by name, or one task set"
    if not isinstance(tasks, Mapping) or not tasks:
        raise OptionError(f"{wanted}, not {_called(tasks)}")
    for name, one in tasks.items():
        if not (isinstance(name, str) and isinstance(one, TaskSet)):
            raise OptionError(f"{wanted}; {name!r} is {_called(one)}")
        if not len(one):
            raise DataError(f"tasks: no tasks of the arm {name!r} were given")
    return tasks if isinstance(tasks, Arms) else Arms(tasks)


def _rows(arms: Arms, source: Dataset, pool: ImagePool | None) -> tuple[ImagePool, IntArray]:
    """Return the pool that tasks were drawn from, and the index in the data set of each image."""
    digest, *others = {tasks.key_digest for tasks in arms.values()}
    if others:
        raise DataError("the arms were drawn from different pools; evaluate them one by one")
    if pool is None:
        pool = next((one for one in _pools(source) if one.key_digest == digest), None)
    if pool is None:
        raise DataError(
            "the tasks were not drawn from a split of these data (their image-key digest is "
            f"{digest[:12]}); give the pool that they were drawn from"
        )
    for tasks in arms.values():
        tasks.verify(pool)
    rows = Texts.of(source.keys).find(pool.keys)
    if (rows < 0).any():
        key = pool.keys[int(rows.argmin())]
        raise DataError(f"the pool has {key!r}, which is not an image of the data set")
    return pool, rows


def _pools(source: Dataset) -> Iterator[ImagePool]:
    for split in (*source.splits, "all"):
        with suppress(DataError):  # a split without an image
            yield source.pool(split)


def _told_time(n_tasks: int, reporter: Reporter) -> Callable[[float], None]:
    """Return what is told the seconds of each task, and reports after two how long all will take.

    The first task may include what a function prepares.
    """
    asked: list[float] = []

    def tell(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 2:
            reporter.note(
                f"the function gets {n_tasks:,} tasks one by one, which will take about "
                f"{min(asked) * n_tasks:,.0f} s; a network embeds each image only once, and is "
                'much faster, as a backbone: fsframework.model("ncc", backbone=module)'
            )

    return tell


class _FunctionClassifier(Classifier):
    """A function of the user, which is asked one task at a time.

    Args:
        arm: name of the arm that it is asked about.
        timed: is told the seconds of each task.
    """

    def __init__(
        self, function: Function, pixels: Pixels, arm: str, timed: Callable[[float], None]
    ) -> None:
        self._function, self._pixels, self._arm, self._timed = function, pixels, arm, timed
        name = getattr(function, "__name__", type(function).__name__)
        self.plugin = Called("model", name, getattr(function, "__module__", None) or "")
        self.transductive = bool(getattr(function, "transductive", False))

    def scores(self, support: IntArray, query: IntArray) -> Tensor:
        """Return 1 for the best scores of each query, else 0."""
        way, shot = support.shape[1:]
        found = []
        for shown, asked in zip(support, query, strict=True):
            labels, start = np.repeat(np.arange(way), shot), time.perf_counter()
            scores = self._function(self._pixels[shown.ravel()], labels, self._pixels[asked])
            self._timed(time.perf_counter() - start)
            found.append(self._best(scores, (len(asked), way)))
        return torch.from_numpy(np.stack(found)).to(torch.int8)

    def _best(self, scores: Any, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Return which scores are the best of their query, in the type that they came in.

        Raises:
            DataError: they are not finite real numbers of a shape.
        """
        try:
            # A list is right for every type, device and layout of tensor that has values.
            plain = scores.tolist() if isinstance(scores, Tensor) else scores
            found: npt.NDArray[Any] = np.asarray(plain)
            sound = found.dtype.kind in "fiu" and not np.ma.is_masked(scores)
        except Exception:  # whatever an object raises that cannot be made an array
            sound = False
        if not sound:
            what = _called(scores)
        elif found.shape != shape:
            what = f"numbers of shape {found.shape}"
        elif not np.isfinite(found).all():
            what = f"numbers of which {(~np.isfinite(found)).sum()} are not finite"
        else:
            best: npt.NDArray[np.bool_] = found == found.max(axis=1, keepdims=True)
            return best
        raise DataError(
            f"{self._arm} {item()}: the model returned {what}; it must return finite real numbers "
            f"of shape {shape}, a row per query and a column per class"
        )
