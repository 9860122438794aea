"""Each check of methods rejects the one broken component made for it, and nothing else does."""

import dataclasses
import inspect
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from fsframework.interfaces import FewShotMethod, MethodWrapper, OptionError, ViewMaker, Views
from fsframework.testing import ConformanceError, NotApplicable, checks_for, parametrize_with_checks
from fsframework.testing.method import (
    ITEM_SHAPES,
    ToyBackbone,
    _toy_accuracy,
    built,
    check_loss,
    check_loss_on_device,
    check_queries_independent,
    check_scores_on_device,
    check_solves_toy_task,
    toy_episode,
)
from tests.misdeclared import hashed, misdeclared

COUNT = itertools.count()


class Nearest(FewShotMethod):
    """Give a query to the class whose mean is nearest."""

    weightless = True

    def __init__(self, *, scale: float = 1.0):
        super().__init__()
        self.scale = scale

    def scores(self, support, query):
        return -self.scale * torch.cdist(query, support.mean(dim=2))


class OnMaps(Nearest):
    """The same on pooled, projected maps; it learns from items and episodes."""

    consumes = "maps"
    learns_from = "both"
    weightless = False

    def build(self, item_shape, n_base_classes, backbone):
        self.projection = nn.Linear(item_shape[0], 24)
        self.head = nn.Linear(24, n_base_classes)

    def embed(self, items):
        return self.projection(items.mean(dim=(2, 3)))

    def loss(self, batch):
        logits = self.head(self.embed(batch.items))
        return super().loss(batch) + functional.cross_entropy(logits, batch.classes)


class OnImages(Nearest):
    """The same on images; it learns from items."""

    consumes = "images"
    learns_from = "batches"
    weightless = False

    def build(self, item_shape, n_base_classes, backbone):
        self.backbone = backbone
        self.head = nn.Linear(32, n_base_classes)

    def embed(self, items):
        return self.backbone.vectors(self.backbone(items))

    def loss(self, batch):
        return functional.cross_entropy(self.head(self.embed(batch.items)), batch.classes)


class Adapted(FewShotMethod):
    """Fit a linear classifier to the support by gradient descent, with gradients enabled."""

    learns_from = "nothing"
    weightless = True

    def scores(self, support, query):
        tasks, way, shot, size = support.shape
        target = torch.arange(way, device=support.device).repeat_interleave(shot).expand(tasks, -1)
        with torch.enable_grad():
            weight = support.new_zeros(tasks, way, size).requires_grad_()
            for _ in range(10):
                logits = support.flatten(1, 2) @ weight.mT
                loss = functional.cross_entropy(logits.mT, target, reduction="sum")
                [gradient] = torch.autograd.grad(loss, weight)
                weight = (weight - 0.01 * gradient).detach().requires_grad_()
        return (query @ weight.mT).detach()


class Learnt(FewShotMethod):
    """Uses little more than one channel before training."""

    def build(self, item_shape, n_base_classes, backbone):
        self.weight = nn.Parameter(torch.full(item_shape, 1e-3).index_fill(0, torch.arange(1), 1.0))

    def scores(self, support, query):
        return -torch.cdist(query * self.weight, support.mean(dim=2) * self.weight)


class Transductive(Nearest):
    """Queries influence each other, as declared."""

    transductive = True

    def scores(self, support, query):
        return super().scores(support, query - query.mean(dim=1, keepdim=True))


class ForFiveWays(Nearest):
    """It learns a bias per way and accepts only five ways."""

    n_way = 5
    weightless = False

    def build(self, item_shape, n_base_classes, backbone):
        self.bias = nn.Parameter(torch.linspace(0, 0.1, self.n_way))

    def scores(self, support, query):
        if support.shape[1] != self.n_way:
            raise OptionError(f"made for {self.n_way} ways, got {support.shape[1]}")
        return super().scores(support, query) + self.bias


class Dimmed(ViewMaker):
    """Two views of random brightness."""

    n_views = 2
    random = True

    def make(self, images):
        n = len(images)
        views = images[:, None] * torch.rand(n, 2, 1, 1, 1)
        return Views(views, torch.zeros(n, 2, dtype=torch.int64))


class Queueing(Nearest):
    """It learns from two views of images without labels, away from those of the last step."""

    learns_from = "views"
    uses_labels = False
    trains_on_images = True
    weightless = False

    def __init__(self, *, scale: float = 1.0):
        super().__init__(scale=scale)
        self.views = Dimmed()

    def build(self, item_shape, n_base_classes, backbone):
        self.backbone = backbone
        self.weight = nn.Parameter(torch.ones(item_shape))
        self.register_buffer("queue", torch.zeros(4, 32), persistent=self.persistent)

    persistent = True

    def loss(self, batch):
        first, second = (self.backbone.encode(batch.views[:, i]) * self.weight for i in range(2))
        self.carried = {"keys": second.detach()}
        return (first - second).square().mean() + (first @ self.queue.mT).mean()

    def after_step(self, carried):
        self.queue.copy_(carried["keys"][:4])


class Forgetting(Queueing):
    """Its queue is lost when it is saved."""

    persistent = False


class Erasing(Dimmed):
    """Two views that show nothing of the image."""

    def make(self, images):
        made = super().make(images)
        return dataclasses.replace(made, images=torch.rand(made.images.shape))


class Pairing(FewShotMethod):
    """Scores are 0 until it has learnt to find the other view of an image."""

    learns_from = "views"
    uses_labels = False
    trains_on_images = True

    def __init__(self):
        super().__init__()
        self.views = Erasing()

    def build(self, item_shape, n_base_classes, backbone):
        self.backbone = backbone
        self.weight = nn.Parameter(torch.zeros(item_shape))

    def scores(self, support, query):
        means = functional.normalize(support.mean(dim=2), dim=2)
        return (functional.normalize(query, dim=2) * self.weight) @ means.mT

    def loss(self, batch):
        first, second = (self.backbone.encode(batch.views[:, i])[None] for i in range(2))
        alike = self.scores(second[:, :, None], first)[0]
        return functional.cross_entropy(10 * alike, torch.arange(len(alike), device=alike.device))


class Blind(Pairing):
    """Its loss does not look at the views."""

    def loss(self, batch):
        return (self.weight + 1).square().mean()


class BlindFromTheStart(Queueing):
    """Its loss does not look at the views, but it solves the toy task without learning."""

    def loss(self, batch):
        self.carried = {"keys": torch.zeros(len(batch.views), 32)}
        return self.weight.square().mean()


class Viewless(Nearest):
    """It learns from views, but nothing makes any."""

    learns_from = "views"


class NoMethod(nn.Module):
    """It has the methods but not the interface."""


class Untyped(Nearest):
    """An option without a type."""

    def __init__(self, *, scale=1.0):
        super().__init__(scale=scale)


class Unstored(Nearest):
    """An option that is not stored."""

    def __init__(self, *, temperature: float = 1.0):
        super().__init__(scale=1 / temperature)


class Silent(Nearest):
    pass


class Misspelt(Nearest):
    """It declares an unknown source to learn from."""

    learns_from = "episode"


class Heavy(Learnt):
    """It has weights but declares that it has none."""

    weightless = True


class Turned(Nearest):
    """Ways before queries."""

    def scores(self, support, query):
        return super().scores(support, query).mT


class Even(Nearest):
    """Queries in equal numbers."""

    def scores(self, support, query):
        tasks, n, _ = query.shape
        way = support.shape[1]
        if n > 1:
            query = query.reshape(tasks, way, n // way, -1).flatten(1, 2)
        return super().scores(support, query)


class FirstFavoured(Nearest):
    """The first way is slightly more likely."""

    def scores(self, support, query):
        scores = super().scores(support, query)
        return scores + 0.1 * (torch.arange(scores.shape[2], device=scores.device) == 0)


class ForAnyWaysAfterAll(Nearest):
    """It declares five ways but accepts others."""

    n_way = 5


class LastShot(Nearest):
    """The last shot counts double."""

    def scores(self, support, query):
        return super().scores(torch.cat([support, support[:, :, -1:]], dim=2), query)


class Secretly(Transductive):
    """Queries influence each other without a declaration."""

    transductive = False


class Pooled(Nearest):
    """Tasks influence each other."""

    def scores(self, support, query):
        return super().scores(support, query - 0.3 * support.mean(dim=(0, 1, 2)))


class Remembering(Nearest):
    """The mean of earlier tasks shifts the prototypes."""

    def __init__(self, *, scale: float = 1.0):
        super().__init__(scale=scale)
        self._last = 0.0

    def scores(self, support, query):
        shifted = support + self._last
        self._last = support.mean()
        return super().scores(shifted, query)


class Counting(Nearest):
    """Counts its calls in a buffer."""

    def __init__(self, *, scale: float = 1.0):
        super().__init__(scale=scale)
        self.register_buffer("calls", torch.zeros(()))

    def scores(self, support, query):
        self.calls += 1
        return super().scores(support, query)


class InPlace(Nearest):
    """Normalises its inputs in place."""

    def scores(self, support, query):
        if not self.training:
            support /= support.norm(dim=-1, keepdim=True)
            query /= query.norm(dim=-1, keepdim=True)
        return super().scores(support, query)


class Centred(Nearest):
    """An embedded image depends on the batch."""

    def embed(self, items):
        return items - items.mean(dim=0)


class Unsaved(Nearest):
    """A random scale that is not in the state dict."""

    def build(self, item_shape, n_base_classes, backbone):
        self.register_buffer("random", torch.rand(item_shape) + 0.5, persistent=False)

    def scores(self, support, query):
        return super().scores(support * self.random, query * self.random)


class Detached(Nearest):
    """A loss without a gradient."""

    def loss(self, batch):
        return super().loss(batch).detach()


class HalfPrecise(Nearest):
    """Half precision makes its loss infinite."""

    def loss(self, batch):
        scores = super().scores(*self.embed_episode(batch))
        low = (scores @ scores.mT).dtype != torch.float32
        return super().loss(batch) * (torch.inf if low else 1.0)


class Positioned(Transductive):
    """Later queries are better known."""

    def scores(self, support, query):
        scores = super().scores(support, query)
        return scores * torch.linspace(1, 2, query.shape[1], device=scores.device)[:, None]


class Unseeded(Learnt):
    """Its weights come from a generator that no seed reaches."""

    def build(self, item_shape, n_base_classes, backbone):
        super().build(item_shape, n_base_classes, backbone)
        drawn = torch.rand(item_shape, generator=torch.Generator().manual_seed(next(COUNT)))
        self.weight.data += 1e-3 * drawn


class Unlabelled(Learnt):
    """Its loss looks at no label."""

    def loss(self, batch):
        return self.scores(*self.embed_episode(batch)).softmax(dim=2).var() - self.weight.sum()


class Reversed(Nearest):
    """The loss of the worst answers is the least, but it needs no training."""

    def loss(self, batch):
        return -super().loss(batch)


class Noisy(Nearest):
    """From the second step on, its loss draws from a generator that no seed reaches."""

    weightless = False
    steps = 0

    def build(self, item_shape, n_base_classes, backbone):
        self.weight = nn.Parameter(torch.ones(item_shape))

    def scores(self, support, query):
        return super().scores(support * self.weight, query * self.weight)

    def loss(self, batch):
        self.steps += 1
        return super().loss(batch) * (next(COUNT) % 7 if self.steps > 1 else 1)


class Cooling(Nearest):
    """Its loss counts its calls, which a stopped training forgets."""

    calls = 0

    def loss(self, batch):
        self.calls += 1
        return super().loss(batch) / self.calls


class Hashed(Nearest):
    """Its scale depends on the hashes of the process."""

    def scores(self, support, query):
        return super().scores(support, query) * (1 + hashed())


class OnCpu(Nearest):
    """It makes a tensor where scores are usually computed."""

    def scores(self, support, query):
        scores = super().scores(support, query)
        return scores + torch.zeros(scores.shape[2])


class Peeking(Nearest):
    """Its loss looks at itself."""

    def loss(self, batch):
        loss = super().loss(batch)
        return loss * 2 if loss > 100 else loss


class Farthest(Nearest):
    """The wrong sign."""

    def scores(self, support, query):
        return -super().scores(support, query)


class Idle(MethodWrapper):
    """The method within it never acts after a step."""

    def __init__(self, *, base: FewShotMethod | None = None):
        super().__init__(base=base or Nearest())

    def after_step(self, carried):
        pass


class ByName(Nearest):
    """Gives a query to the class whose name is nearest."""

    needs_class_names = True

    def scores_with(self, support, query, known):
        return -torch.cdist(query, known.names)


class Named(ByName):
    """Moves the means of the supports towards the names."""

    def embed_names(self, names):
        return super().embed_names([f"a photo of a {name}" for name in names])

    def scores_with(self, support, query, known):
        return self.scores(support + known.names[:, :, None], query)


class Wrapped(MethodWrapper):
    """A method with names within another one."""

    def __init__(self, *, base: FewShotMethod | None = None):
        super().__init__(base=base or Named())


class NamedImages(ByName):
    """Reads names in the space of the images that it trains on."""

    trains_on_images = True

    def build(self, item_shape, n_base_classes, backbone):
        self.backbone = backbone

    def loss(self, batch):
        items = torch.cat([batch.support.flatten(0, 2), batch.query.flatten(0, 1)])
        vectors = self.backbone.encode(items)
        support, query = vectors.split(
            [batch.support.shape[:3].numel(), batch.query[..., 0, 0, 0].numel()]
        )
        scores = self.scores(
            support.unflatten(0, batch.support.shape[:3]),
            query.unflatten(0, batch.query.shape[:2]),
        )
        return functional.cross_entropy(scores.flatten(0, 1), batch.query_labels.flatten())


class Weighted(Nearest):
    """Means of supports weighted by how many words they have; learns from words too."""

    needs_words = True
    learns_from = "both"

    def embed_words(self, words):
        return torch.tensor([[float(len(word))] for word in words])

    def scores_with(self, support, query, known):
        weight = 1 + (known.words.float() @ known.word_vectors)
        means = (support * weight).sum(dim=2) / weight.sum(dim=2)
        return -torch.cdist(query, means)

    def loss(self, batch):
        assert batch.words.shape[0] == len(batch.items)
        assert batch.query_words.shape[:2] == batch.query.shape[:2]
        support = batch.support * (1 + batch.support_words.float().mean(dim=3, keepdim=True))
        return super().loss(dataclasses.replace(batch, support=support)) + 0 * batch.items.sum()


class Bare(Weighted):
    """Asks only which image has which word."""

    def embed_words(self, words):
        return FewShotMethod.embed_words(self, words)

    def scores_with(self, support, query, known):
        weight = 1 + known.words.float().mean(dim=3, keepdim=True)
        return -torch.cdist(query, (support * weight).sum(dim=2) / weight.sum(dim=2))


class Deaf(Nearest):
    """It asks for names and scores without."""

    needs_class_names = True


class CentredNames(Named):
    """Names minus the mean of all names."""

    def embed_names(self, names):
        found = super().embed_names(names)
        return found - found.mean(dim=0)


class FirstNames(Named):
    """The names of the first task serve all tasks."""

    def scores_with(self, support, query, known):
        return self.scores(support + known.names[:1, :, None], query)


class FirstWords(Weighted):
    """The words of the first task serve all tasks."""

    def scores_with(self, support, query, known):
        words = known.words[:1].expand_as(known.words)
        return super().scores_with(support, query, dataclasses.replace(known, words=words))


class StuckNames(Named):
    """The names do not move with the ways."""

    def scores_with(self, support, query, known):
        return self.scores(support + known.names.cumsum(dim=1)[:, :, None], query)


class StuckWords(Weighted):
    """The words of a way do not move with the shots."""

    def scores_with(self, support, query, known):
        words = known.words.float().cumsum(dim=2) > 1
        return super().scores_with(support, query, dataclasses.replace(known, words=words))


class NamesInPlace(Named):
    """It scales its input names."""

    def scores_with(self, support, query, known):
        known.names.mul_(0.5)
        return super().scores_with(support, query, known)


SOUND = [
    *(Nearest, OnMaps, OnImages, Adapted, Learnt, Transductive, ForFiveWays, Queueing),
    *(ByName, Named, Wrapped, NamedImages, Weighted, Bare),
]
BROKEN: dict[str, type] = {
    "check_construction": NoMethod,
    "check_options_typed": Untyped,
    "check_options_stored": Unstored,
    "check_summary": Silent,
    **misdeclared(Nearest),
    "check_declarations": Misspelt,
    "check_weightless": Heavy,
    "check_same_weights": Unseeded,
    "check_scores": Turned,
    "check_other_shapes": Even,
    "check_way_order": FirstFavoured,
    "check_n_way": ForAnyWaysAfterAll,
    "check_shot_order": LastShot,
    "check_queries_independent": Secretly,
    "check_query_order": Positioned,
    "check_tasks_independent": Pooled,
    "check_no_memory": Remembering,
    "check_state_unchanged": Counting,
    "check_inputs_unchanged": InPlace,
    "check_embed_independent": Centred,
    "check_known": Deaf,
    "check_texts_independent": CentredNames,
    "check_state_dict": Unsaved,
    "check_loss": Detached,
    "check_loss_in_bfloat16": HalfPrecise,
    "check_scores_on_device": OnCpu,
    "check_loss_on_device": Peeking,
    "check_loss_labels": Reversed,
    "check_training_repeats": Noisy,
    "check_state_saved": Cooling,
    "check_bases_act": Idle,
    "check_fresh_process": Hashed,
    "check_solves_toy_task": Farthest,
}


@parametrize_with_checks(SOUND)
def test_a_sound_method_passes(make, check):
    check(make)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "method") == {name}


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (FirstNames, "check_tasks_independent"),
        (FirstWords, "check_tasks_independent"),
        (StuckNames, "check_way_order"),
        (StuckWords, "check_shot_order"),
        (NamesInPlace, "check_inputs_unchanged"),
    ],
)
def test_what_is_known_keeps_the_rules_of_the_items(broken, name, failing):
    assert failing(broken, "method") == {name}


def test_every_check_has_its_broken_method():
    assert list(BROKEN) == [check.__name__ for check in checks_for("method")]


def test_a_loss_without_labels_and_a_queue_that_is_lost_are_found(failing):
    assert failing(Unlabelled, "method") == {"check_loss_labels"}
    assert failing(Forgetting, "method") == {"check_state_saved"}


class Demanding(Nearest):
    """Takes only backbones with something that the toy lacks."""

    def build(self, item_shape, n_base_classes, backbone):
        raise OptionError("Demanding needs a backbone with an embedding of words")


def test_a_method_that_refuses_the_toy_backbone_is_not_judged():
    with pytest.raises(NotApplicable, match="refuses the backbone of this suite: Demanding needs"):
        built(Demanding)


def test_what_does_not_apply_says_why():
    with pytest.raises(NotApplicable, match="does not learn"):
        check_loss(Adapted)
    with pytest.raises(NotApplicable, match="transductive"):
        check_queries_independent(Transductive)


def test_a_method_may_need_training_to_solve_the_toy_task():
    assert _toy_accuracy(built(Learnt)) < 0.8
    check_solves_toy_task(Learnt)


class Converging(Nearest):
    """It ends when it is good enough, and says so; its loss goes another way."""

    reads_values = "it ends when it is good enough"

    def scores(self, support, query):
        return super().scores(support, query) * (1 if support.sum() > 0 else 2)

    def loss(self, batch):
        scores = Nearest.scores(self, *self.embed_episode(batch))
        return functional.cross_entropy(scores.flatten(0, 1), batch.query_labels.flatten())


class ConvergingToo(Converging):
    """Its loss scores."""

    def loss(self, batch):
        return Nearest.loss(self, batch)


class ConvergingTwice(Converging):
    """Its loss reads a value too, but not to score."""

    def loss(self, batch):
        loss = super().loss(batch)
        return loss * min(1, loss.item())


class NeverConverging(Nearest):
    """It reads no values but says that it does."""

    reads_values = "why not"


class ConvergingOnCpu(Converging):
    """It makes a tensor on the CPU before it reads a value."""

    def scores(self, support, query):
        return super().scores(support @ torch.eye(support.shape[-1]), query)


class Numbered(Nearest):
    """A reason that is not one."""

    reads_values = True


def test_a_method_that_must_read_values_says_so(failing):
    check_scores_on_device(Converging)
    check_loss_on_device(Converging)
    with pytest.raises(NotApplicable, match="reads_values is 'it ends when it is good enough'"):
        check_loss_on_device(ConvergingToo)
    assert failing(ConvergingTwice, "method") == {"check_loss_on_device"}
    assert failing(NeverConverging, "method") == {"check_scores_on_device"}
    assert failing(ConvergingOnCpu, "method") == {"check_scores_on_device"}
    assert failing(Numbered, "method") == {"check_declarations"}


def test_who_learns_from_views_must_have_a_maker(failing):
    assert failing(Viewless, "method") == {"check_declarations"}


def test_a_fault_is_found_at_its_line():
    with pytest.raises(ConformanceError) as caught:
        check_scores_on_device(OnCpu)
    message = str(caught.value)
    line = inspect.unwrap(OnCpu.scores).__code__.co_firstlineno + 2
    assert f"{__file__}, line {line} (return scores + torch.zeros(scores.shape[2]))" in message
    assert "makes a tensor on the CPU (aten.zeros.default)" in message


class Undeclared(Nearest):
    """It has no weights but does not declare this."""

    weightless = False


def test_a_method_without_weights_must_say_so(failing):
    assert failing(Undeclared, "method") == {"check_weightless"}


class BackwardLoss(Learnt):
    """Training makes it worse."""

    def loss(self, batch):
        return -super().loss(batch)


def test_training_in_the_wrong_direction_is_found(failing):
    assert failing(BackwardLoss, "method") == {"check_solves_toy_task"}


def test_a_method_on_views_need_not_have_views_that_show_the_toy_classes():
    assert _toy_accuracy(built(Pairing)) < 0.8
    check_solves_toy_task(Pairing)


@pytest.mark.slow
def test_a_loss_that_ignores_the_views_is_found(failing):
    assert failing(BlindFromTheStart, "method") == {"check_loss"}
    assert failing(Blind, "method") >= {"check_loss", "check_solves_toy_task"}
    with pytest.raises(ConformanceError, match="loss does not depend on the views"):
        check_loss(Blind)


@pytest.mark.parametrize("consumes", ITEM_SHAPES)
def test_toy_episodes_hold_what_they_say(consumes):
    episode = toy_episode(consumes, tasks=2, way=4, shot=2, n=9)
    assert episode.support.shape == (2, 4, 2, *ITEM_SHAPES[consumes])
    assert episode.query.shape == (2, 9, *ITEM_SHAPES[consumes])
    counts = torch.stack([row.bincount(minlength=4) for row in episode.query_labels])
    assert counts.tolist() == [[3, 2, 2, 2]] * 2
    assert all(len(set(row)) == 4 for row in episode.classes.tolist())


def test_the_toy_backbone_makes_the_toy_maps():
    images = toy_episode("images").query[0]
    assert ToyBackbone()(images).shape[1:] == ITEM_SHAPES["maps"]
