"""Types of the options of a run, made by docs/sitepages/options.py.

There is no such module when a program runs: import it under ``typing.TYPE_CHECKING``.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from torch.nn import Module

from fsframework import interfaces

_T = TypeVar("_T")

Component: TypeAlias = str | Mapping[str, Any] | type[_T] | _T
"""A name, a mapping of a name and options, a class or an instance."""

Axis: TypeAlias = _T | Sequence[_T] | None
"""A value for all experiments of a grid, or one for each."""

Method: TypeAlias = Component[interfaces.FewShotMethod]
Sampler: TypeAlias = Component[interfaces.TaskSampler]
Dataset: TypeAlias = Component[interfaces.Dataset]
Backbone: TypeAlias = Component[interfaces.Backbone] | Module
Detector: TypeAlias = Component[interfaces.AttributeDetector]
Statistic: TypeAlias = Component[interfaces.Statistic]
Launcher: TypeAlias = Component[interfaces.Launcher]

class Stage(TypedDict, total=False):
    """Options of a stage of training."""

    method: Method
    """Another method with whose loss this stage trains the backbone, such as baseline before LEO;
    none for the method under test."""

    learns_from: Literal["method", "episodes", "batches", "both", "views"]
    """What the loss of a step is computed on; method is what the method declares."""

    epochs: int
    """Number of epochs; after each the validation accuracy is measured. 0 trains nothing, so that
    with init_from the weights of another run are evaluated as they are."""

    steps: int
    """Updates per epoch."""

    n_way: int | None
    """Classes per episode; none takes the way of the tasks under test."""

    n_shot: int | None
    """Support images per class; none takes the shot of the tasks under test."""

    n_query: int
    """Queries per class of an episode."""

    tasks_per_step: int
    """Episodes per update."""

    batch_size: int
    """Images per step on batches or views."""

    augment: (
        Literal["resized-crop", "color-jitter", "flip"]
        | Sequence[Literal["resized-crop", "color-jitter", "flip"]]
    )
    """Random changes made to an image each time it is used, any of resized-crop, color-jitter and
    flip."""

    optimizer: str
    """Name of one of torch.optim that takes a learning rate and a weight decay: adam (Kingma & Ba
    2015), sgd, adamw, ...; or module and class of another library's, such as fsf_timm:Lars, with
    its own defaults for all else."""

    learning_rate: float
    """Learning rate at the start; schedule changes it from epoch to epoch."""

    momentum: float
    """Of optimisers that have one, such as sgd."""

    nesterov: bool
    """Whether that momentum is Nesterov's."""

    weight_decay: float
    """L2 penalty."""

    decayed: Literal["all", "matrices"]
    """What the penalty is for: all parameters, or matrices only, which leaves out biases and
    BatchNorm's weights. LARS adapts its rate to those with a penalty."""

    clip_norm: float | None
    """Gradients of a larger Euclidean norm are scaled down to this one."""

    schedule: Literal["constant", "cosine", "step", "multi-step", "plateau"]
    """How the learning rate changes: constant; cosine to 0 at the end; step: times gamma every
    step_epochs; multi-step: times gamma at each of milestones; plateau: times gamma whenever the
    validation accuracy has not risen for step_epochs."""

    milestones: Sequence[int]
    """Epochs, counted from 0, at which the rate is multiplied once more."""

    step_epochs: int
    """Epochs between two steps of the schedules step and plateau."""

    gamma: float
    """Factor of the schedules step, multi-step and plateau."""

    freeze: str | Sequence[str]
    """Prefixes of parameter names that stay as they are, such as backbone."""

    init_from: str | Path | None
    """Start the training from the weights of another run, of a model that a package has under a
    name, or of a file (.safetensors, .pth), also of another program."""

    init_parts: str | Sequence[str]
    """Prefixes of the weights to take from init_from; by default all whose names agree."""

    distill: bool
    """The model at the start of this stage becomes the teacher of a newly initialised one: a method
    that supports it learns from the teacher's outputs on its batches or views."""

    teacher: str | Path | None
    """A run folder, whose model becomes the teacher instead, with a backbone of its own; the stage
    goes on with the weights it has."""

    precision: Literal["fp32", "bf16", "fp16"]
    """Number format: fp32, or matrix products and convolutions in bf16 or fp16 (the latter with
    scaled gradients), in validation too; weights and evaluation stay in fp32."""

    compile: bool
    """Compile the backbone with torch.compile; worth it for a long training."""

    validation_tasks: int
    """Tasks after each epoch; 0 keeps the last epoch."""

    patience: int | None
    """Stop when the validation accuracy has not risen for this many epochs; without validation all
    epochs are trained."""

class Training(Stage, total=False):
    """Options of all stages, and of single ones."""

    stages: Sequence[Stage]

class Dropping(TypedDict, total=False):
    """Which words images are not to have."""

    drop_class_words: bool | None
    """Remove from each image the words that name its own class."""

    drop_words: str | Sequence[str] | None
    """Words to remove, separated by commas."""

    drop_words_in_classes: float | None
    """Remove words that most images of at least this share of the classes have, such as bird of
    captions of birds."""

    min_count: int | None
    """Remove words that fewer than N images have."""

class Arguments(Dropping, total=False):
    """Options of ``fsframework.run``."""

    method: Method | None
    """Few-shot method."""

    sampler: Sampler | None
    """How tasks are drawn."""

    dataset: Dataset | None
    """Data set: planted, folder:PATH, csv:FILE, ..."""

    backbone: Backbone | None
    """Feature extractor."""

    detector: Detector | None
    """Detect the words in the images: vit-gpt2, blip, clip-words, captions-file:FILE, ... (see fsf
    plugins list --kind detector)."""

    shot: int | None
    """Support images per class."""

    way: int | None
    """Classes per task."""

    queries: int | None
    """Query images per class."""

    training: Training | Sequence[Stage] | None
    """Options of all stages of the training, or a list of stages."""

    statistics: Statistic | Sequence[Statistic] | None
    """What to measure; repeatable. Set its options with -o statistics.NAME.OPTION=VALUE."""

    seed: int | None
    """Same seed, same tasks, weights and scores."""

    name: str | None
    """Name of the run and its folder."""

    allow_code: bool | None
    """Let the configuration file name code that is imported and so runs, such as
    training.optimizer=module:Class. Such names may always be given outside of the file."""

    allow_external: bool | None
    """Let configuration files and records set options that open a connection, read the environment,
    run a command or write elsewhere, such as the url of an endpoint. They may always be given
    outside of the file."""

    attributes: str | Path | None
    """Words of the images: FILE.csv or FILE.parquet (columns key, words; words separated by ';' in
    CSV), or column:NAME."""

    task_seed: int | None
    """Seed of the tasks, in place of --seed."""

    training_seed: int | None
    """Seed of initial weights and training, in place of --seed."""

    tasks: int | Literal["all"] | None
    """Number of tasks; all for samplers that end, such as depleting."""

    device: str | None
    """Where it is computed: auto, cpu, cuda, cuda:N or mps."""

    placebo: bool | None
    """Permute the images of each class, separately for every task: a gap that remains does not come
    from the attributes."""

    level: float | None
    """Confidence level of intervals."""

    interval: Literal["student-t", "percentile", "bca", "image-level", "class-level"] | None
    """How intervals are computed: student-t; percentile or bca, bootstraps of the tasks;
    image-level or class-level, which cover new images or new classes even where tasks share
    them."""

    query_batch: Literal["task", "class"] | None
    """Pass the method all queries of a task together, or those of one class at a time as FewSTAB's
    published evaluation does."""

    image_size: int | None
    """Height and width of images."""

    precision: Literal["fp32", "bf16", "fp16"] | None
    """Number format in which the backbone embeds images: bf16 is about twice as fast on CPUs that
    support it, fp16 is for GPUs."""

    decoding: Literal["exact", "scaled"] | None
    """Decode image files in full, or, faster, only to the detail that the image size needs."""

    broken: Literal["fatal", "skip"] | None
    """Stop at an image that cannot be read, or skip it."""

    class_names: str | None
    """What methods that read class names are told: each class's own name, the name of another
    class, random syllables, or the names of a file (columns class, name)."""

    split: str | None
    """Split whose images are used; all uses every image."""

    task_file: str | Path | None
    """Evaluate the tasks of this file (see fsf tasks make), of the folder of a run, or of a task
    set of an installed package, such as cub/fewstab-5w1s-v1."""

    offline: bool | None
    """Make no network call; models must be in the local cache or a folder."""

    recipe: str | None
    """How the method is trained: quick, fewstab, ... (see fsf recipes list), or none."""

    model: str | Path | None
    """Use the method, backbone and weights of another run or of an imported one; train nothing. A
    folder, a name or its beginning, a selector such as method=renet,shot=5, or a model of an
    installed package, such as cifar-fs/protonet."""

    tensorboard: bool | None
    """Also write the training curve for TensorBoard into the run's folder."""

    init_from: str | Path | None
    """Start the training from the weights of another run, of a model that a package has under a
    name, or of a file (.safetensors, .pth), also of another program."""

class Grid(TypedDict, total=False):
    """Options of ``fsframework.sweep``, as in ``Arguments``."""

    method: Axis[Method]
    sampler: Axis[Sampler]
    dataset: Axis[Dataset]
    backbone: Axis[Backbone]
    detector: Axis[Detector]
    shot: Axis[int]
    way: Axis[int | None]
    queries: Axis[int | None]
    training: Training | Sequence[Stage | Sequence[Stage]] | None
    statistics: Statistic | Sequence[Statistic] | Sequence[Sequence[Statistic]] | None
    seed: Axis[int]
    launcher: Axis[Launcher]
    allow_code: Axis[bool]
    allow_external: Axis[bool]
    attributes: Axis[str | Path | None]
    drop_class_words: Axis[bool]
    drop_words: str | Sequence[str] | Sequence[Sequence[str]] | None
    drop_words_in_classes: Axis[float | None]
    min_count: Axis[int]
    task_seed: Axis[int]
    training_seed: Axis[int]
    tasks: Axis[int | Literal["all"] | None]
    device: Axis[str]
    placebo: Axis[bool]
    level: Axis[float]
    interval: Axis[Literal["student-t", "percentile", "bca", "image-level", "class-level"]]
    query_batch: Axis[Literal["task", "class"]]
    image_size: Axis[int | None]
    precision: Axis[Literal["fp32", "bf16", "fp16"]]
    decoding: Axis[Literal["exact", "scaled"]]
    broken: Axis[Literal["fatal", "skip"]]
    class_names: Axis[str]
    split: Axis[str | None]
    task_file: Axis[str | Path | None]
    offline: Axis[bool]
    recipe: Axis[str | None]
    model: Axis[str | Path | None]
    tensorboard: Axis[bool]
    init_from: Axis[str | Path | None]
    seeds: Iterable[int] | int | str | None
