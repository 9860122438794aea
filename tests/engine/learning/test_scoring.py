"""What a method returns is checked, and what it changes while it scores is restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fsframework._calls import contained
from fsframework.engine.learning import evaluation
from fsframework.engine.learning.evaluation import ImageSource, evaluate, predict
from fsframework.engine.learning.model import FewShotModel, build_model
from fsframework.engine.learning.scoring import Scorer, check_tensor
from fsframework.engine.progress import Reporter
from fsframework.errors import PluginError
from fsframework.interfaces import Backbone, FewShotMethod
from fsframework.values import ImagePool, TaskSet
from tests.toys import Prototypes, TinyBackbone, component

CPU = torch.device("cpu")
SHAPE = (2, 4, 3)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (
            lambda x: x.to_sparse(),
            r"float32 of shape \(2, 4, 3\) on cpu with the layout sparse_coo",
        ),
        (lambda x: x.to(torch.complex64), r"complex64 of shape \(2, 4, 3\) on cpu"),
        (lambda x: x.to(torch.int64), r"int64 of shape \(2, 4, 3\) on cpu"),
        (lambda x: x > 0, r"bool of shape \(2, 4, 3\) on cpu"),
        (lambda x: x.to("meta"), r"float32 of shape \(2, 4, 3\) on meta"),
        (lambda x: x[:, :, :2], r"float32 of shape \(2, 4, 2\) on cpu"),
        (lambda x: x[0], r"float32 of shape \(4, 3\) on cpu"),
        (lambda x: x / 0, r"float32 of shape \(2, 4, 3\) on cpu, 24 of them not finite"),
    ],
)
def test_a_malformed_tensor_is_described(made: Callable[[Tensor], Tensor], found: str) -> None:
    method = component(Prototypes).create()
    wanted = r"it must return finite floating-point numbers of shape \(2, 4, 3\) on cpu"
    with pytest.raises(
        PluginError, match=f"method 'Prototypes': scores returned {found}; {wanted}"
    ):
        check_tensor(method, "scores", made(torch.ones(SHAPE)), SHAPE, CPU)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_point_type_will_do(dtype: torch.dtype) -> None:
    check_tensor(Prototypes(), "scores", torch.ones(SHAPE, dtype=dtype), SHAPE, CPU)
    check_tensor(Prototypes(), "embed", torch.ones(SHAPE, dtype=dtype), (2, -1), CPU)
    with pytest.raises(PluginError, match=r"of shape \(3, \.\.\.\) on cpu"):
        check_tensor(Prototypes(), "embed", torch.ones(SHAPE, dtype=dtype), (3, -1), CPU)


class Drifting(Prototypes):
    """Without a guard, its scores would depend on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)
        self.norm = nn.BatchNorm1d(8)

    def drift(self, query: Tensor) -> None:
        with torch.no_grad():
            self.calls.add_(1)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        self.drift(query)
        noise = torch.cos(query.sum(dim=2, keepdim=True) * 100 * self.calls)
        shift = torch.arange(support.shape[1]) * noise * self.scale
        running = self.norm.running_mean
        assert running is not None
        return super().scores(support, query) * 0.01 + shift + running.sum()


class InPlace(Drifting):
    """Counts its calls in a buffer."""


class Replacing(Drifting):
    """Puts another tensor in the place of a buffer."""

    def drift(self, query: Tensor) -> None:
        self.calls = self.calls + 1


class Moving(Drifting):
    """Gives a parameter other memory."""

    def drift(self, query: Tensor) -> None:
        self.scale.data = self.scale.data * 1.5


class Training(Drifting):
    """Switches to training mode, in which BatchNorm changes its statistics."""

    def drift(self, query: Tensor) -> None:
        self.train()
        self.norm(query.flatten(0, 1))


DRIFTING = {InPlace: "calls", Replacing: "calls", Moving: "scale", Training: "norm.running_mean"}


class Told(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def tasks() -> TaskSet:
    pool = ImagePool(tuple(map(str, range(60))), np.repeat(np.arange(3), 20), ("a", "b", "c"))
    rng = np.random.default_rng(0)
    images = np.stack([[rng.permutation(20)[:7] + 20 * c for c in range(3)] for _ in range(12)])
    classes = np.tile(np.arange(3), (12, 1))
    support, query = images[..., :2], images[..., 2:]
    return TaskSet.of(pool, classes, support, query, sampler="any", options={}, seed=0)


def model(method: type[FewShotMethod]) -> FewShotModel:
    return build_model(component(TinyBackbone), component(method), 16, 0, 0)


@pytest.mark.parametrize("method", DRIFTING)
def test_a_method_that_changes_itself_is_restored_and_named(
    tasks: TaskSet, method: type[FewShotMethod], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    reporter, found = Told(), []
    for at_once in (1, 3, 12):
        monkeypatch.setattr(evaluation, "_tasks_a_batch", lambda *_, n=at_once: n)
        net = model(method)
        before = {k: v.clone() for k, v in net.method.named_buffers()}
        weights = {k: v.detach().clone() for k, v in net.state_dict().items()}
        outcomes = evaluate(net, tasks, ImageSource(items), label="tasks", reporter=reporter)
        found.append(outcomes.predictions)
        assert all(torch.equal(v, weights[k]) for k, v in net.state_dict().items())
        assert all(torch.equal(v, before[k]) for k, v in net.method.named_buffers())
        assert not net.method.training
    if method is not Training:  # there a batch's statistics depend on the batch
        assert all((one == found[0]).all() for one in found)
    [line] = reporter.lines
    told = f"note: method '{method.__name__}' changes its weights or buffers while it scores"
    assert line.startswith(f"{told} ({DRIFTING[method]}"), line
    assert line.endswith("; they are restored after each call")


def test_a_method_that_changes_nothing_is_not_named() -> None:
    scorer = Scorer(Prototypes().eval())
    support, query = torch.randn(2, 3, 1, 8), torch.randn(2, 5, 8)
    assert scorer(support, query).shape == (2, 5, 3)
    assert scorer.remark == ""


class Mapped(Backbone):
    """Loses an image."""

    def forward(self, images: Tensor) -> Tensor:
        return images[1:]


class NotFinite(Prototypes):
    """Embeds into nothing."""

    def embed(self, items: Tensor) -> Tensor:
        return items / 0


@pytest.mark.parametrize(
    ("backbone", "method", "message"),
    [
        (Mapped, Prototypes, r"backbone 'Mapped': encode returned float32 of shape \(15, 3\)"),
        (TinyBackbone, NotFinite, "method 'NotFinite': embed returned .* not finite"),
    ],
)
def test_what_is_embedded_is_checked(
    tasks: TaskSet, backbone: type[Backbone], method: type[FewShotMethod], message: str
) -> None:
    net = build_model(component(backbone), component(method), 16, 0, 0)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    with pytest.raises(PluginError, match=message):
        predict(net, tasks, ImageSource.computed(net, pixels, tasks))


def lossy(loss: Any) -> type[FewShotMethod]:
    methods = {"__module__": __name__, "loss": lambda self, batch: loss(self, batch)}
    return type("Lossy", (Prototypes,), methods)


class Sour(torch.autograd.Function):
    """Has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        raise SystemExit(0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda self, _: self.scale.detach(), "loss of step 1 of epoch 1 returned a constant"),
        (
            lambda self, _: self.scale.expand(2),
            r".* returned float32 of shape \(2,\) on cpu; .* \(\)",
        ),
        (lambda self, _: 0.5, "loss of step 1 of epoch 1 returned a result of type float"),
        (lambda self, _: 1 / 0, ".* of step 1 of epoch 1 raised ZeroDivisionError"),
        (lambda self, _: Sour.apply(self.scale), "the gradient of loss of step 1 .* SystemExit: 0"),
    ],
)
def test_a_broken_loss_is_named(tmp_path: Path, loss: Any, message: str) -> None:
    from fsframework.engine.stages import Stage
    from tests.engine.learning.test_training import Split, run
    from tests.toys import Blobs

    data = Blobs()
    split = Split(data.pool("train"), data.images(data.split_indices("train"), 16))
    stage = Stage(epochs=1, steps=2, validation_tasks=0, n_query=4)
    with pytest.raises(PluginError, match=f"method 'Lossy': {message}"), contained():
        run(tmp_path, (split, None), [stage], method=lossy(loss))
