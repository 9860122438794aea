"""Checks of few-shot methods on small synthetic episodes.

Items are vectors ``(32,)``, maps ``(32, 5, 5)`` or images ``(3, 20, 20)``, as the method
``consumes``; images go through ``ToyBackbone``, in training only for a method that
``trains_on_images``. Every class is a cluster around its own centre, and has a name whose text
features are that centre. The words of support images are drawn at random.
Scoring runs in evaluation mode under ``torch.no_grad``, on the items that ``embed`` returns; a
method that adapts by gradients enables them itself. Scores are compared to within a thousandth of
their range, in float32.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsframework._calls import seeded
from fsframework.errors import OptionError
from fsframework.interfaces.backbone import Backbone, Preprocessing
from fsframework.interfaces.method import Batch, FewShotMethod, Known
from fsframework.interfaces.views import ViewMaker, Views
from fsframework.interfaces.wrapping import MethodWrapper
from fsframework.testing._example import note_call, shown, size
from fsframework.testing._meta import fault_on_meta, mixes_devices
from fsframework.testing._suite import Make, NotApplicable, Suite, require
from fsframework.testing._tensors import require_close, snapshot, usual_settings

__all__ = ["ITEM_SHAPES", "TOY_NAMES", "Episode", "ToyBackbone", "built", "suite", "toy_episode"]

suite = Suite(FewShotMethod)

ITEM_SHAPES: dict[str, tuple[int, ...]] = {
    "vectors": (32,),
    "maps": (32, 5, 5),
    "images": (3, 20, 20),
}
"""Shape of a toy item of each kind; ``ToyBackbone`` turns the images into the maps."""

TOY_NAMES = (
    *("anchor", "bottle", "candle", "drum", "engine", "feather", "guitar", "hammer", "island"),
    *("jacket", "kettle"),
)
"""Names of the toy classes, which ``ToyBackbone`` can read."""

_WORDS = ("dusk", "fog", "grass", "mud", "sand", "snow")
_N_BASE = len(TOY_NAMES)
_SOLVED = 0.8
_ROUNDS, _STEPS_A_ROUND = 4, 15
_QUERIES = 75
_TASKS = {"vectors": (64, 75), "maps": (64, 5), "images": (8, 5)}
"""Tasks and queries of a realistic batch: what adapts to pixels costs a training per task."""


class ToyBackbone(Backbone):
    """Two convolution blocks, 3 -> 16 -> 32 channels, each halving height and width.

    The features of a text are the sum of those of its words: of a toy class, the centre of its
    toy vectors; of another word, a small vector of its own.
    """

    preprocessing = Preprocessing(size=20)
    reads_text = True

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_block(3, 16), _block(16, 32))

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to ``(n, 32, H // 4, W // 4)``."""
        maps: Tensor = self.blocks(images)
        return maps

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """Map texts to the sums of the features of their words, ``(n, 32)``."""
        centres = self._named()
        rows = [centres.new_zeros(centres.shape[1]) for _ in texts]
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                if word in TOY_NAMES:
                    rows[row] = rows[row] + centres[TOY_NAMES.index(word)]
                else:
                    own = torch.Generator().manual_seed(zlib.crc32(word.encode()))
                    drawn = 0.05 * torch.randn(len(rows[row]), generator=own)
                    rows[row] = rows[row] + drawn.to(centres)
        return torch.stack(rows)

    def _named(self) -> Tensor:
        """Return the features of the names of the classes."""
        return _centres("vectors").to(next(self.parameters()))


class _ImageReader(ToyBackbone):
    """Gives each name the encoded image of its class's centre, where items are encoded images."""

    def _named(self) -> Tensor:
        return self.encode(_centres("images").to(next(self.parameters())))


def _block(before: int, after: int) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, 3, padding=1)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2))


@dataclass(frozen=True)
class Episode:
    """Tasks with their answers; shapes as in ``Batch``, ``classes`` int64 ``(tasks, way)``."""

    support: Tensor
    query: Tensor
    query_labels: Tensor
    classes: Tensor


def _episode(
    method: FewShotMethod,
    *,
    tasks: int = 3,
    way: int = 5,
    shot: int = 3,
    n: int = 10,
    seed: int = 0,
) -> Episode:
    """Return a toy episode, smaller in a small example.

    It has the method's ``n_way`` ways if it has one, else at most ``way``.
    """
    shape = {
        "tasks": size("tasks", tasks),
        "way": method.n_way or size("ways", way, least=2),
        "shot": size("shots", shot),
        "n": size("queries", n),
        "seed": seed,
    }
    return _given_to(method, **shape)


def _given_to(method: FewShotMethod, *, way: int, **shape: Any) -> Episode:
    """Return a toy episode of an exact shape.

    A method that ``trains_on_images`` is shown images that its backbone has encoded.
    """
    if not method.trains_on_images:
        return toy_episode(method.consumes, way=way, **shape)
    episode = toy_episode("images", way=way, **shape)
    return dataclasses.replace(
        episode,
        support=_encoded(method, episode.support),
        query=_encoded(method, episode.query),
    )


def _encoded(method: FewShotMethod, images: Tensor) -> Tensor:
    """Return what the backbone that a method holds makes of images ``(..., 3, 20, 20)``."""
    found = [m for m in method.modules() if isinstance(m, ToyBackbone)]
    require(found, "trains_on_images is True, but build has not stored the backbone")
    with torch.no_grad():
        maps = found[0](images.flatten(0, -4))
        items = found[0].vectors(maps) if method.consumes == "vectors" else maps
    return items.reshape(*images.shape[:-3], *items.shape[1:])


def toy_episode(
    consumes: str,
    *,
    tasks: int = 3,
    way: int = 5,
    shot: int = 3,
    n: int = 10,
    noise: float = 1.0,
    seed: int = 0,
) -> Episode:
    """Return tasks among eleven classes whose centres are about 3 apart.

    >>> toy_episode("vectors", way=2, n=4).query_labels[0].sort().values.tolist()
    [0, 0, 1, 1]
    """
    generator = torch.Generator().manual_seed(seed)
    classes = torch.stack([torch.randperm(_N_BASE, generator=generator) for _ in range(tasks)])
    classes = classes[:, :way]
    # The queries are spread evenly over the ways, in random order.
    order = torch.stack([torch.randperm(n, generator=generator) for _ in range(tasks)])
    labels = order % way
    return Episode(
        _items(consumes, classes[:, :, None].expand(-1, -1, shot), noise, generator),
        _items(consumes, classes.gather(1, labels), noise, generator),
        labels,
        classes,
    )


def _items(consumes: str, classes: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Return items around their classes' centres, ``(*classes.shape, *item)``."""
    spread = noise * torch.randn(*classes.shape, *ITEM_SHAPES[consumes], generator=generator)
    items = _centres(consumes)[classes] + spread
    return items if consumes == "images" else items.relu()


def _centres(consumes: str) -> Tensor:
    """Return the centre of each class, ``(11, *item)``; of maps, of one pixel."""
    if consumes == "images":
        fixed = torch.Generator().manual_seed(0)
        coarse = 1.5 * torch.randn(_N_BASE, 3, 4, 4, generator=fixed)
        return coarse.repeat_interleave(5, dim=2).repeat_interleave(5, dim=3)
    # As after a ReLU: no value is negative, and each class has channels that others lack.
    shape = ITEM_SHAPES[consumes]
    centres = 3 * torch.eye(_N_BASE).repeat(1, 3)[:, : shape[0]]
    return centres.reshape(_N_BASE, shape[0], *[1] * (len(shape) - 1))


def built(make: Make, seed: int = 0) -> FewShotMethod:
    """Return a method in evaluation mode, built for toy items, with weights drawn from the seed."""
    with seeded(seed):
        method: FewShotMethod = make()
        _build(method)
    return method.eval()


def _build(method: FewShotMethod) -> ToyBackbone:
    """Build a method for toy items, and return its backbone.

    Raises:
        NotApplicable: the method takes only backbones with something that the toy lacks.
    """
    on_images = method.trains_on_images or method.consumes == "images"
    backbone = _ImageReader() if on_images else ToyBackbone()
    method.read_with(backbone)
    try:
        method.build(ITEM_SHAPES[method.consumes], _n_base(method), backbone)
    except OptionError as error:
        raise NotApplicable(f"it refuses the backbone of this suite: {error}") from None
    return backbone


def _n_base(method: FewShotMethod) -> int:
    return _N_BASE if method.uses_labels and method.learns_from != "nothing" else 0


_ALL = slice(None)
_Part = slice | list[int] | Tensor


@dataclass(frozen=True)
class _Shown:
    """What ``scores_with`` is shown of tasks: embedded support and queries, and what is known."""

    support: Tensor
    query: Tensor
    known: Known

    def of(
        self,
        *,
        tasks: _Part = _ALL,
        ways: _Part = _ALL,
        shots: _Part = _ALL,
        queries: _Part = _ALL,
    ) -> _Shown:
        """Return some tasks, ways, shots and queries, in an order."""
        names, words = self.known.names, self.known.words
        return _Shown(
            self.support[tasks][:, ways][:, :, shots],
            self.query[tasks][:, queries],
            Known(
                None if names is None else names[tasks][:, ways],
                None if words is None else words[tasks][:, ways][:, :, shots],
                self.known.word_vectors,
            ),
        )

    def mapped(self, change: Callable[[Tensor], Tensor]) -> _Shown:
        """Return all its tensors, changed."""
        found = {field: getattr(self.known, field) for field in ("names", "words", "word_vectors")}
        known = {name: change(one) for name, one in found.items() if one is not None}
        return _Shown(change(self.support), change(self.query), Known(**known))


def _embedded(method: FewShotMethod, episode: Episode) -> _Shown:
    """Embed once, so a fault of ``embed`` is not taken for one of ``scores``."""
    note_call(f"embed_episode(batch) of support {_of(episode.support)}, query {_of(episode.query)}")
    with torch.no_grad():
        batch = Batch(support=episode.support.clone(), query=episode.query.clone())
        support, query = copy.deepcopy(method).embed_episode(batch)
    return _Shown(support, query, _known(method, episode))


def _known(method: FewShotMethod, episode: Episode) -> Known:
    """Return what a method asks to know of an episode."""
    names = words = vectors = None
    with torch.no_grad():
        if method.needs_class_names:
            note_call(f"embed_names({len(TOY_NAMES)} names)")
            names = copy.deepcopy(method).embed_names(TOY_NAMES)[episode.classes]
        if method.needs_words:
            note_call(f"embed_words({len(_WORDS)} words)")
            vectors = copy.deepcopy(method).embed_words(_WORDS)
            words = _drawn_words(episode.support.shape[:3], len(episode.classes))
    return Known(names, words, vectors)


def _drawn_words(shape: Sequence[int], seed: int = 0) -> Tensor:
    """Return which words images have, bool ``(*shape, w)``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, len(_WORDS), generator=generator) < 0.5


def _answer(method: FewShotMethod, shown: _Shown) -> Tensor:
    """Score with copies of the method and of its inputs, so neither can change."""
    return _score(copy.deepcopy(method), shown.mapped(Tensor.clone))


def _score(method: FewShotMethod, shown: _Shown) -> Tensor:
    told = [what for what in ("names", "words") if getattr(shown.known, what) is not None]
    of = f"support {_of(shown.support)}, query {_of(shown.query)}"
    note_call(f"scores_with({of}, {' and '.join(told)})" if told else f"scores({of})")
    with torch.no_grad():
        scores: Tensor = method.scores_with(shown.support, shown.query, shown.known)
    return scores


def _of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _require_scores(scores: object, episode: Episode) -> None:
    tasks, way = episode.classes.shape
    expected = tasks, episode.query.shape[1], way
    what = f"tasks={tasks}, ways={way}, shots={episode.support.shape[2]}, queries={expected[1]}"
    require(isinstance(scores, Tensor), f"scores must be a tensor, not {type(scores).__name__}")
    assert isinstance(scores, Tensor)
    require(
        scores.shape == expected,
        f"scores must have the shape {expected} for {what}, not {tuple(scores.shape)}",
    )
    require(scores.is_floating_point(), f"scores must be floats, not {scores.dtype}")
    require(scores.isfinite().all(), f"scores for {what} must be finite, not {shown(scores)}")


@suite.check()
def check_declarations(make: Make) -> None:
    """The declarations of a method have allowed values."""
    method = make()
    for name, known in (
        ("consumes", tuple(ITEM_SHAPES)),
        ("learns_from", ("episodes", "batches", "both", "views", "nothing")),
        ("uses_labels", (False, True)),
        ("trains_on_images", (False, True)),
        ("transductive", (False, True)),
        ("weightless", (False, True)),
        ("needs_class_names", (False, True)),
        ("needs_words", (False, True)),
    ):
        value = getattr(method, name)
        require(value in known, f"{name} must be one of {known}, not {value!r}")
    reason = method.reads_values
    require(isinstance(reason, str), f"reads_values must be the reason in words, not {reason!r}")
    _check_views(method)
    ways = method.n_way
    require(
        ways is None or (isinstance(ways, int) and ways >= 2),
        f"n_way must be None or at least 2, not {ways!r}",
    )


def _check_views(method: FewShotMethod) -> None:
    maker = method.views
    require(
        maker is None or isinstance(maker, ViewMaker),
        f"views must be a ViewMaker or None, not {maker!r}",
    )
    require(
        maker is not None or method.learns_from != "views",
        "it learns from views, but it has no maker of views",
    )


@suite.check(after=[check_declarations])
def check_weightless(make: Make) -> None:
    """A method is ``weightless`` if and only if it has no weights of its own once built."""
    method: FewShotMethod = make()
    backbone = _build(method)
    held = {id(p) for p in backbone.parameters()}
    own = [name for name, p in method.named_parameters() if id(p) not in held]
    require(not (own and method.weightless), f"weightless is True, but it has weights: {own[:3]}")
    require(
        bool(own) or method.weightless,
        "it has no weights once it is built; declare weightless = True",
    )


@suite.check(after=[check_declarations])
def check_same_weights(make: Make) -> None:
    """The same seed gives the same weights, whatever was made before."""
    first, _, again = (built(make, seed).state_dict() for seed in (0, 1, 0))
    for name, tensor in first.items():
        same = name in again and torch.equal(tensor, again[name])
        require(same, f"the same seed gives other weights {name} the second time")


@suite.check(after=[check_declarations])
def check_scores(make: Make) -> None:
    """``scores`` returns finite floats ``(tasks, n, way)``, the same again for the same tasks."""
    method = built(make)
    episode = _episode(method)
    found = _answer(method, _embedded(method, episode))
    _require_scores(found, episode)
    require_close(
        _answer(method, _embedded(method, episode)),
        found,
        "the same tasks get other scores a second time (does it draw random numbers?)",
    )


@suite.check(after=[check_scores])
def check_other_shapes(make: Make) -> None:
    """Any number of tasks, ways, shots and queries works."""
    method = built(make)
    for tasks, way, shot, n in ((1, 2, 1, 11), (2, 2, 3, 5), (4, 7, 1, 1), (2, 7, 3, 11)):
        episode = _episode(method, tasks=tasks, way=way, shot=shot, n=n)
        _require_scores(_answer(method, _embedded(method, episode)), episode)


@suite.check(after=[check_scores])
def check_way_order(make: Make) -> None:
    """Permuting the ways permutes the scores, unless the method has an ``n_way``.

    Their names and words move with them. Ways with the same support, name and words get the same
    scores, so that no tie goes to the first way.
    """
    method = built(make)
    if method.n_way is not None:
        raise NotApplicable(f"its weights are for {method.n_way} ways in a fixed order")
    shown = _embedded(method, _episode(method, shot=5, n=_QUERIES))
    order = [way for way in (1, 4, 3, 0, 2) if way < shown.support.shape[1]]
    wide = _embedded(method, _episode(method, way=_N_BASE, tasks=1, n=_N_BASE))
    ways = wide.support.shape[1]
    require_close(
        _answer(method, wide.of(ways=_reversed(ways))),
        _answer(method, wide).flip(2),
        f"of {ways} ways, reversing them does not reverse the scores",
    )
    require_close(
        _answer(method, shown.of(ways=order)),
        _answer(method, shown)[:, :, order],
        f"taking the ways in the order {order} does not permute the scores",
    )
    alike = _answer(method, shown.of(ways=[0] * len(order)))
    apart = (alike.amax(dim=2) - alike.amin(dim=2)).max()
    scale = max(1.0, alike.abs().max().item())
    # What is larger breaks no tie: votes of the nearest image, for one, or a support that is read
    # as a sequence.
    require(
        apart <= 1e-4 * scale or apart > 1e-2 * scale,
        f"ways with the same support get other scores, by {apart:.2g}: ties go to some ways",
    )


def _reversed(count: int) -> list[int]:
    return [*range(count)][::-1]


@suite.check(after=[check_scores])
def check_n_way(make: Make) -> None:
    """A method with an ``n_way`` refuses another number of ways with an ``OptionError``."""
    method = built(make)
    if method.n_way is None:
        raise NotApplicable("it takes any number of ways")
    shown = _embedded(method, toy_episode(method.consumes, way=method.n_way + 1))
    try:
        _answer(method, shown)
    except OptionError:
        return
    require(False, f"with n_way = {method.n_way}, it must refuse {method.n_way + 1} ways")


@suite.check(after=[check_scores])
def check_shot_order(make: Make) -> None:
    """The order of a class's support images does not matter."""
    method = built(make)
    shown = _embedded(method, _episode(method, shot=5, n=_QUERIES))
    order = [shot for shot in (1, 4, 3, 0, 2) if shot < shown.support.shape[2]]
    require_close(
        _answer(method, shown.of(shots=order)),
        _answer(method, shown),
        f"the order {order} of the shots gives different scores",
    )


@suite.check(after=[check_scores])
def check_queries_independent(make: Make) -> None:
    """A query's scores do not depend on the other queries, unless ``transductive``."""
    method = built(make)
    if method.transductive:
        raise NotApplicable("it is transductive")
    shown = _embedded(method, _episode(method, tasks=2, n=_QUERIES))
    together, n = _answer(method, shown), shown.query.shape[1]
    for begin, end in ((0, 1), (1, 2), (37, 38), (74, 75), (0, 40), (40, 75)):
        if begin >= n:
            continue
        which = f"query {begin} gets" if end == begin + 1 else f"queries {begin} to {end - 1} get"
        require_close(
            _answer(method, shown.of(queries=slice(begin, end))),
            together[:, begin:end],
            f"{which} other scores alone than among {n} (is the method transductive?)",
        )


@suite.check(after=[check_scores])
def check_query_order(make: Make) -> None:
    """Permuting the queries permutes the scores, of a transductive method too."""
    method = built(make)
    shown = _embedded(method, _episode(method, tasks=2, n=_QUERIES))
    order = torch.randperm(shown.query.shape[1], generator=torch.Generator().manual_seed(0))
    require_close(
        _answer(method, shown.of(queries=order)),
        _answer(method, shown)[:, order],
        "permuting the queries does not permute the scores",
    )


@suite.check(after=[check_scores])
def check_tasks_independent(make: Make) -> None:
    """The tasks of a batch, with their names and words, do not influence each other."""
    method = built(make)
    embeds_images = method.consumes == "images" and method.embeds
    tasks, n = _TASKS["maps" if embeds_images else method.consumes]
    shown = _embedded(method, _episode(method, tasks=tasks, n=n))
    together, tasks = _answer(method, shown), len(shown.support)
    for i in sorted({0, min(1, tasks - 1), tasks - 1}):
        require_close(
            _answer(method, shown.of(tasks=slice(i, i + 1))),
            together[i : i + 1],
            f"task {i} gets other scores alone than among {tasks}",
        )
    backwards = _answer(method, shown.of(tasks=_reversed(tasks))).flip(0)
    require_close(backwards, together, "in reverse order, tasks get other scores")


@suite.check(after=[check_scores, check_other_shapes])
def check_no_memory(make: Make) -> None:
    """Scores do not depend on earlier tasks: of A, B and A, both A get the same scores."""
    method = built(make)
    first, second = _episode(method, shot=1, n=7), _episode(method, seed=1)
    a, b = _embedded(method, first), _embedded(method, second)
    with torch.no_grad():
        alone = copy.deepcopy(method).embed(second.query[0][:7].clone())
    expected = _answer(method, b)
    before, between, again = (_score(method, one.mapped(Tensor.clone)) for one in (a, b, a))
    with torch.no_grad():
        items = [part.query[0][:7] for part in (first, second)]
        embedded = [method.embed(item.clone()) for item in (*items, items[0])]
    require_close(embedded[2], embedded[0], "the same items are embedded differently later")
    require_close(embedded[1], alone, "items are embedded differently after others")
    require_close(between, expected, "scores after other tasks differ from those of a new method")
    require_close(again, before, "the same tasks get different scores the second time")


@suite.check(after=[check_scores])
def check_state_unchanged(make: Make) -> None:
    """Scoring changes no parameter, buffer, training flag or setting of PyTorch."""
    method = built(make)
    shown = _embedded(method, _episode(method))
    with usual_settings():
        before = snapshot(method)
        _score(method, shown)
        changed = before.difference(method)
    require(not changed, f"scoring changes {', '.join(changed)}")


@suite.check(after=[check_scores])
def check_inputs_unchanged(make: Make) -> None:
    """Support, queries, names and words are not changed."""
    method = built(make)
    shown = _embedded(method, _episode(method))
    given = shown.mapped(Tensor.clone)
    _score(method, given)
    for name, before, after in (
        ("support", shown.support, given.support),
        ("queries", shown.query, given.query),
        ("names", shown.known.names, given.known.names),
        ("words", shown.known.words, given.known.words),
    ):
        same = before is None or (after is not None and torch.equal(after, before))
        require(same, f"scoring changes its input {name}")


@suite.check(after=[check_scores])
def check_embed_independent(make: Make) -> None:
    """In evaluation mode ``embed`` treats every image independently."""
    method = built(make)
    items = _episode(method, tasks=1, n=40).query[0]
    with torch.no_grad():
        together = copy.deepcopy(method).embed(items.clone())
        edges = sorted({0, 1, 2, len(items) - 1, len(items)} & {*range(len(items) + 1)})
        parts = [slice(begin, end) for begin, end in itertools.pairwise(edges)]
        note_call(f"embed(items {_of(items)}), also of its parts")
        alone = [copy.deepcopy(method).embed(items[part].clone()) for part in parts]
    require(
        len(together) == len(items),
        f"{len(items)} items must give {len(items)} embedded items, not {len(together)}",
    )
    require_close(
        torch.cat(alone), together, "items one by one are embedded differently than in a batch"
    )


@suite.check(after=[check_scores])
def check_known(make: Make) -> None:
    """What a method asks to know, names of classes or words, changes its scores.

    Words may change what it learns instead.
    """
    method = built(make)
    if not (method.needs_class_names or method.needs_words):
        raise NotApplicable("it asks to know neither names nor words")
    shown = _embedded(method, _episode(method))
    expected, known = _answer(method, shown), shown.known
    others = {}
    if known.names is not None:
        others["needs_class_names"] = dataclasses.replace(known, names=known.names.roll(1, dims=1))
    if known.words is not None and known.word_vectors is not None:
        vectors = 1 - known.word_vectors
        others["needs_words"] = dataclasses.replace(known, words=~known.words, word_vectors=vectors)
    for declared, other in others.items():
        found = _answer(method, dataclasses.replace(shown, known=other))
        same = torch.equal(found, expected)
        if same and declared == "needs_words" and method.learns_from != "nothing":
            same = not _learns_words(make)
        require(not same, f"{declared} is True, but the scores are the same with others")


def _learns_words(make: Make) -> bool:
    """Return whether other words of the training images give another loss, or another state."""
    left = []
    for turned in (False, True):
        method = built(make).train()
        batch = _batch(method, seed=0)[1]
        names = ("words", "support_words", "query_words")
        words = {n: w ^ turned for n in names if (w := getattr(batch, n)) is not None}
        with seeded(0):
            loss = method.loss(dataclasses.replace(batch, **words)).detach()
        left.append([loss, *method.state_dict().values()])
    return not all(torch.equal(one, other) for one, other in zip(*left, strict=True))


@suite.check(after=[check_scores])
def check_texts_independent(make: Make) -> None:
    """``embed_names`` and ``embed_words`` treat every text independently, always alike."""
    method = built(make)
    asked = {
        "embed_names": (method.needs_class_names, method.embed_names, TOY_NAMES),
        "embed_words": (method.needs_words, method.embed_words, _WORDS),
    }
    if not any(needed for needed, _, _ in asked.values()):
        raise NotApplicable("it asks to know neither names nor words")
    for name, (needed, embed, texts) in asked.items():
        if needed:
            note_call(f"{name}({len(texts)} texts), also of single ones")
            _require_rows(name, embed, texts)


def _require_rows(
    name: str, embed: Callable[[Sequence[str]], Tensor], texts: Sequence[str]
) -> None:
    with torch.no_grad():
        together = embed(texts)
        require(
            isinstance(together, Tensor) and len(together) == len(texts),
            f"{name} of {len(texts)} texts must return as many rows",
        )
        require(
            together.is_floating_point() and together.isfinite().all(),
            f"{name} must return finite floats, not {shown(together)}",
        )
        alone = torch.cat([embed([text]) for text in texts])
        backwards = embed(texts[::-1]).flip(0)
    require_close(alone, together, f"{name} maps texts one by one differently than together")
    require_close(backwards, together, f"{name} maps texts in reverse order differently")


@suite.check(after=[check_scores])
def check_state_dict(make: Make) -> None:
    """A state dict loaded into another instance gives the same scores."""
    first, second = built(make, 0), built(make, 1)
    episode = _episode(first)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    require_close(
        _answer(second, _embedded(second, episode)),
        _answer(first, _embedded(first, episode)),
        "scores differ with the same state dict",
    )


@suite.check(after=[check_scores])
def check_loss(make: Make) -> None:
    """``loss`` is a finite scalar whose gradient reaches a parameter, or the items without any.

    It also reaches the views of a method that has a maker of views. ``loss`` itself changes no
    weights.
    """
    method = built(make).train()
    if method.learns_from == "nothing":
        raise NotApplicable("it does not learn")
    items, batch = _batch(method, seed=0, requires_grad=True)
    if batch.views is not None:
        batch.views.requires_grad_()
    weights = {name: p.detach().clone() for name, p in method.named_parameters()}
    note_call("loss(batch)")
    with seeded(0):
        loss = method.loss(batch)
    moved = [n for n, p in method.named_parameters() if n in weights and (p != weights[n]).any()]
    require(not moved, f"loss itself changes the weights {', '.join(moved[:3])}")
    require(
        isinstance(loss, Tensor) and loss.ndim == 0,
        f"loss must be a scalar tensor, not {getattr(loss, 'shape', type(loss))}",
    )
    require(loss.isfinite(), f"loss must be finite, not {loss.item()}")
    require(loss.requires_grad, "loss has no gradient")
    loss.backward()
    learning = [p for p in method.parameters() if p.requires_grad]
    what = "a parameter" if learning else "the items"
    gradients = [t.grad for t in learning or items if t.grad is not None]
    require(any(g.any() for g in gradients), f"the gradient of loss does not reach {what}")
    require(all(g.isfinite().all() for g in gradients), "the gradient of loss is not finite")
    if batch.views is not None:
        seen = batch.views.grad
        require(seen is not None and seen.any(), "loss does not depend on the views")


@suite.check(after=[check_loss])
def check_loss_in_bfloat16(make: Make) -> None:
    """In mixed precision (bfloat16 autocast) ``loss`` and its gradients stay finite."""
    method = built(make).train()
    if method.learns_from == "nothing":
        raise NotApplicable("it does not learn")
    items, batch = _batch(method, seed=0, requires_grad=True)
    with seeded(0), torch.autocast("cpu", torch.bfloat16):
        loss = method.loss(batch)
    require(loss.isfinite(), f"under autocast the loss must be finite, not {loss.item()}")
    loss.backward()
    gradients = [t.grad for t in (*method.parameters(), *items) if t.grad is not None]
    require(all(g.isfinite().all() for g in gradients), "under autocast the gradient is not finite")


def _batch(
    method: FewShotMethod,
    *,
    seed: int,
    noise: float = 1.0,
    requires_grad: bool = False,
    gentle: bool = False,
) -> tuple[list[Tensor], Batch]:
    """Return the batch of a training step, and the leaf tensors in it.

    Args:
        gentle: views show the class of their image, whatever the maker's would show.
    """
    kind = "images" if method.trains_on_images else method.consumes
    episode = toy_episode(kind, way=method.n_way or 5, seed=seed, noise=noise)
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(_N_BASE, (24,), generator=generator)
    items = _items(kind, classes, noise, generator)
    leaves = [t.requires_grad_(requires_grad) for t in (episode.support, episode.query, items)]
    views = _views(method, episode, classes, seed, gentle=gentle)
    flat, shots, queries = (
        _drawn_words(shape, seed) if method.needs_words else None
        for shape in (classes.shape, episode.support.shape[:3], episode.query_labels.shape)
    )
    if method.learns_from == "views":
        known = classes if method.uses_labels else None
        return leaves[2:], Batch(classes=known, words=flat, **views)
    whole = Batch(
        support=episode.support,
        query=episode.query,
        query_labels=episode.query_labels,
        support_classes=episode.classes[:, :, None].expand(*episode.support.shape[:3]),
        query_classes=episode.classes.gather(1, episode.query_labels),
        items=items,
        classes=classes if method.uses_labels else None,
        words=flat,
        support_words=shots,
        query_words=queries,
        **views,
    )
    if method.learns_from == "episodes":
        return leaves[:2], dataclasses.replace(whole, items=None, classes=None, words=None)
    if method.learns_from == "batches":
        return leaves[2:], Batch(items=items, classes=whole.classes, words=flat, **views)
    return leaves, whole


def _views(
    method: FewShotMethod, episode: Episode, classes: Tensor, seed: int, *, gentle: bool
) -> dict[str, Tensor]:
    """Return the fields of a batch for views of toy images of the step's classes.

    Views by random draws only, such as crops in other colours, may leave nothing of a toy class.
    Gentle ones differ from their image by noise instead, and small ones are small images of them;
    views by transformations that a method is to recognise stay as they are.
    """
    if method.views is None:
        return {}
    asked = []
    if method.learns_from in ("episodes", "both"):
        shots = episode.classes[:, :, None].expand(*episode.support.shape[:3])
        asked += [shots.flatten(), episode.classes.gather(1, episode.query_labels).flatten()]
    if method.learns_from != "episodes":
        asked.append(classes)
    generator = torch.Generator().manual_seed(seed)
    images = _items("images", torch.cat(asked), 0.5, generator).sigmoid()
    with seeded(seed):
        made = method.views.make(images)
        if gentle and method.views.n_kinds == 1:
            made = _gentle(images, made)
    fields = {"views": (made.images - 0.5) / 0.25, "applied": made.applied}
    if made.small is not None:
        fields["small_views"] = (made.small - 0.5) / 0.25
    return fields


def _gentle(images: Tensor, made: Views) -> Views:
    """Return views like those made, but which differ from their images by noise only."""

    def noisy(like: Tensor) -> Tensor:
        resized = functional.interpolate(images, like.shape[-2:], mode="bilinear")
        return (resized[:, None] + 0.1 * torch.randn(like.shape)).clamp(0, 1)

    small = None if made.small is None else noisy(made.small)
    return Views(noisy(made.images), made.applied, small)


@suite.check(after=[check_scores])
def check_scores_on_device(make: Make) -> None:
    """``embed`` and ``scores`` never make a GPU wait, except where ``reads_values`` says why.

    They run on PyTorch's meta device, whose tensors have no values.
    """
    method = built(make)
    made = _episode(method, tasks=2, shot=2, n=5)
    known = _embedded(method, made).mapped(lambda tensor: tensor.to("meta")).known
    method.to("meta")
    episode = _on_meta(Batch(support=made.support, query=made.query))
    embedded: list[Tensor] = []
    with torch.no_grad():
        fault = fault_on_meta(lambda: embedded.extend(method.embed_episode(episode)))
        require(not fault, f"embed would make a GPU wait: {fault}")

        def score() -> None:
            method.scores_with(embedded[0], embedded[1], known)

        fault = fault_on_meta(score)
        mixed = fault_on_meta(score, feeds=True) if method.reads_values else fault
    require(not mixes_devices(mixed), f"scores mixes devices: {mixed}; pass device=support.device")
    if method.reads_values:
        require(fault, f"reads_values is {method.reads_values!r}, but scores reads none; remove it")
    else:
        require(
            not fault,
            f"scores would make a GPU wait: {fault}; if it must, state why in reads_values",
        )


@suite.check(after=[check_loss, check_scores_on_device])
def check_loss_on_device(make: Make) -> None:
    """``loss`` and its gradient never make a GPU wait, unless by ``scores`` that must."""
    method = built(make).train().to("meta")
    if method.reads_values:
        for name in ("scores", "scores_with"):
            setattr(method, name, _no_scores)
    batch = _on_meta(_batch(method, seed=0)[1])

    def step() -> None:
        method.loss(batch).backward()

    try:
        fault = fault_on_meta(step)
    except _ScoresNeeded as error:
        raise NotApplicable(f"it calls scores; reads_values is {method.reads_values!r}") from error
    require(not fault, f"loss would make a GPU wait: {fault}")


@suite.check(after=[check_loss])
def check_loss_labels(make: Make) -> None:
    """With the labels of other images, ``loss`` is another; never less, where the task is solved.

    Whether the toy task is solved is seen before any training.
    """
    method = built(make).train()
    if method.learns_from == "nothing" or not method.uses_labels:
        raise NotApplicable("it does not learn from labels")
    _, batch = _batch(method, seed=0, noise=0.2, gentle=True)
    labels = ("query_labels", "support_classes", "query_classes", "classes")
    given = {name: getattr(batch, name) for name in labels if getattr(batch, name) is not None}
    moved = {name: tensor.roll(1, dims=-1) for name, tensor in given.items()}
    # Of the last task, or of the last item.
    last = {name: torch.cat([given[name][:-1], _others(given[name][-1:])]) for name in given}
    losses = []
    for fields in ({}, moved, last):
        with seeded(0):
            changed = dataclasses.replace(batch, **fields)
            losses.append(copy.deepcopy(method).loss(changed).item())
    right, wrong, wrong_last = losses
    require(right != wrong, "loss is the same with the labels of other images")
    require(right != wrong_last, "the labels of the last task, or item, do not change the loss")
    if method.learns_from == "episodes" and _toy_accuracy(method.eval()) >= _SOLVED:
        require(right < wrong, f"loss is {right:.3g} with the labels, {wrong:.3g} with wrong ones")


def _others(labels: Tensor) -> Tensor:
    return labels.roll(1, dims=-1) if labels.ndim > 1 else (labels + 1) % _N_BASE


@suite.check(after=[check_loss, check_same_weights])
def check_training_repeats(make: Make) -> None:
    """Two steps of training from one seed give the same weights again."""
    methods = (built(make).train(), built(make).train())
    if methods[0].learns_from == "nothing":
        raise NotApplicable("it does not learn")
    for seed in range(2):
        for method in methods:
            _step(method, seed)
    _require_same_state(*methods, "two steps of training from one seed give other weights again")


@suite.check(after=[check_training_repeats, check_state_dict, check_no_memory])
def check_state_saved(make: Make) -> None:
    """What ``loss`` and ``after_step`` change is in the state dict: a copy goes on alike."""
    method = built(make).train()
    if method.learns_from == "nothing":
        raise NotApplicable("it does not learn")
    _step(method, 0)
    other = built(make, 1).train()
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    for seed in (1, 2):
        require_close(
            _step(other, seed),
            _step(method, seed),
            f"with the same state dict, the loss of step {seed + 1} differs",
        )
    untrained, episode = built(make, 1), _episode(method)
    untrained.load_state_dict(copy.deepcopy(method.state_dict()))
    items = _embedded(untrained, episode)
    require_close(
        _answer(untrained, items),
        _answer(method.eval(), _embedded(method.eval(), episode)),
        "with the state dict of a trained method, another one gives other scores",
    )


@suite.check(after=[check_loss])
def check_bases_act(make: Make) -> None:
    """Each of the ``bases`` of a ``MethodWrapper`` whose ``loss`` was asked acts after the step."""
    method = built(make).train()
    if not isinstance(method, MethodWrapper) or method.learns_from == "nothing":
        raise NotApplicable("it does not train a method within it")
    asked: list[FewShotMethod] = []
    acted: list[FewShotMethod] = []
    for base in method.bases:
        for name, noted in (("loss", asked), ("after_step", acted)):
            setattr(base, name, _noting(noted, base, getattr(base, name)))
    _step(method, 0)
    idle = [type(base).__name__ for base in asked if not any(base is one for one in acted)]
    require(not idle, f"after_step of {', '.join(idle)} is not called although its loss was asked")


def _noting(
    noted: list[FewShotMethod], base: FewShotMethod, function: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    def call(given: Any) -> Any:
        noted.append(base)
        return function(given)

    return call


def _step(method: FewShotMethod, seed: int) -> Tensor:
    """Return the loss of a step of training, update the weights, and act after it."""
    _, batch = _batch(method, seed=seed)
    learning = [p for p in method.parameters() if p.requires_grad]
    with seeded(seed):
        loss = method.loss(batch)
        if learning:
            gradients = torch.autograd.grad(loss, learning, allow_unused=True)
            with torch.no_grad():
                for parameter, gradient in zip(learning, gradients, strict=True):
                    if gradient is not None:
                        parameter.sub_(0.01 * gradient.clamp(-1, 1))
        carried, method.carried = method.carried, {}
        with torch.no_grad():
            method.after_step({name: tensor.detach() for name, tensor in carried.items()})
    return loss.detach()[None]


def _require_same_state(first: nn.Module, second: nn.Module, message: str) -> None:
    theirs = second.state_dict()
    for name, tensor in first.state_dict().items():
        require(name in theirs, f"{message}: {name} is in one state dict only")
        require_close(theirs[name].double(), tensor.double(), f"{message}: {name}")


@suite.answers(after=[check_scores, check_same_weights])
def _answers(make: Make) -> dict[str, Any]:
    method = built(make)
    shown = _embedded(method, _episode(method))
    found: dict[str, Any] = {
        f"the weights {name}": tensor.clone().numpy()
        for name, tensor in method.state_dict().items()
    }
    found["scores"] = _answer(method, shown).numpy()
    if method.learns_from != "nothing":
        with seeded(0):
            found["loss"] = method.train().loss(_batch(method, seed=0)[1]).detach()[None].numpy()
    return found


class _ScoresNeeded(BaseException):
    """Raised instead of scoring; not an ``Exception``, so that no method catches it."""


def _no_scores(*_: Any) -> Tensor:
    raise _ScoresNeeded


def _on_meta(batch: Batch) -> Batch:
    """Return a batch without values on the meta device; its floats require a gradient."""
    given = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    return Batch(
        **{
            name: tensor.detach().to("meta").requires_grad_(tensor.is_floating_point())
            for name, tensor in given.items()
            if tensor is not None
        }
    )


@suite.check(after=[check_scores])
def check_solves_toy_task(make: Make) -> None:
    """Well-separated classes are distinguished: four of five queries, before or after training.

    A method that learns may first take up to 60 steps of Adam at a learning rate of 0.005. Its
    views show the classes, which random crops in other colours may not: makers of views have
    checks of their own.
    """
    method = built(make)
    accuracy = _toy_accuracy(method)
    best = accuracy
    if method.learns_from != "nothing" and best < _SOLVED:
        for round_ in range(_ROUNDS):
            _train(method, round_)
            best = max(best, _toy_accuracy(method))
            if best >= _SOLVED:
                break
    require(best >= _SOLVED, f"accuracy on well-separated classes is {best:.2f}, below {_SOLVED}")


def _toy_accuracy(method: FewShotMethod) -> float:
    episode = _given_to(method, tasks=3, way=method.n_way or 5, shot=3, n=20, noise=0.2, seed=2)
    scores = _answer(method, _embedded(method, episode))
    return (scores.argmax(dim=-1) == episode.query_labels).float().mean().item()


def _train(method: FewShotMethod, round_: int) -> None:
    learning = [p for p in method.parameters() if p.requires_grad]
    if not learning:
        return
    optimiser = torch.optim.Adam(learning, lr=5e-3)
    method.train()
    with seeded(round_):
        for step in range(_STEPS_A_ROUND):
            seed = 100 + round_ * _STEPS_A_ROUND + step
            _, batch = _batch(method, seed=seed, noise=0.2, gentle=True)
            optimiser.zero_grad()
            method.loss(batch).backward()
            optimiser.step()
    method.eval()
