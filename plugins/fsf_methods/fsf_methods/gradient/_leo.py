"""Latent embedding optimisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.gradient._head import fitted, one_hot_ways
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    check_above,
    check_at_least,
    check_below_one,
    check_one_of,
)

__all__ = ["LEO"]


class LEO(FewShotMethod):
    """Adapt a short code of each class by gradient steps, and decode it into the class's weights.

    Source: Rusu et al. 2019, "Meta-Learning with Latent Embedding Optimization", algorithm 1, and
    its authors' code. An encoder and a relation network map the support to a Gaussian over codes
    per class (equation 4); a decoder maps a code to a Gaussian over the weights of a linear
    classifier (equation 5). Gradient descent on the support's cross-entropy adapts the codes
    (equation 6) and then the decoded weights. The loss adds to the cross-entropy of the queries
    (equation 7) the divergence of the codes from a standard Gaussian, the distance of the initial
    from the adapted codes, which are treated as constants, and how far the decoder's rows are from
    orthogonal. The vectors come from a pretrained, frozen backbone (``training.freeze``) and are
    scaled to length 1, as the authors' code does when it reads them: its inner rates and the
    deviations of its weights are made for such vectors, and with long ones training diverges. That
    code also clips every entry of the outer gradients to 0.1 and every gradient's norm to 0.1; here
    the exponentials of ``spread`` are bounded instead, and ``training.clip_norm`` clips.

    In training, codes and weights are drawn from PyTorch's global generator; in evaluation they are
    the means, as in the authors' code, so scores are deterministic. Unlike there, the images of a
    class share one draw, dropout does not affect the classifier's items, and the optimiser's weight
    decay replaces the L2 penalty.

    Args:
        latent_size: numbers in a code.
        inner_lr: learning rate of the codes, above 0.
        inner_steps: steps of the codes, at least 0.
        finetune_lr: learning rate of the decoded weights, above 0.
        finetune_steps: steps of the decoded weights, at least 0.
        learned_rates: whether the two rates are only initial values of learned ones, one number for
            each entry of a code and of a weight vector, as in the authors' code.
        kl_weight: weight of the divergence, the paper's beta; at least 0, as the next two.
        encoder_penalty_weight: weight of the distance between codes, the paper's gamma.
        orthogonality_weight: weight of the orthogonality penalty, the paper's lambda 2.
        normalize: whether to scale vectors to length 1; LibFewShot does not.
        dropout: fraction of the encoder's inputs dropped in training, in [0, 1).
        sample: draw codes and weights in training; else use the means there too.
        bias: whether encoder and decoder have biases; LibFewShot's do, the authors' do not.
        spread: how the networks' outputs become deviations: ``exp``, as in the authors' code, the
            exponential (here of at most 2) minus 1, at least 1e-10, and for weights initially that
            of Glorot's initialisation; ``relu``, as in LibFewShot: the relation network ends in a
            rectifier and its outputs are the deviations; the decoder's are used unchanged.
        orthogonal: rows of the decoder's matrix that should be orthogonal: one for each entry of a
            code (``latents``, the authors), or for each output (``outputs``, LibFewShot).
        first_order: treat the inner gradients as constants in training, as LibFewShot does.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        latent_size: int = 64,
        inner_lr: float = 1.0,
        inner_steps: int = 5,
        finetune_lr: float = 1e-3,
        finetune_steps: int = 5,
        learned_rates: bool = True,
        kl_weight: float = 1e-3,
        encoder_penalty_weight: float = 1e-9,
        orthogonality_weight: float = 1e-3,
        normalize: bool = True,
        dropout: float = 0.0,
        sample: bool = True,
        bias: bool = False,
        spread: Literal["exp", "relu"] = "exp",
        orthogonal: Literal["latents", "outputs"] = "latents",
        first_order: bool = False,
    ) -> None:
        super().__init__()
        check_at_least(1, latent_size=latent_size)
        check_above(0, inner_lr=inner_lr, finetune_lr=finetune_lr)
        check_at_least(0, inner_steps=inner_steps, finetune_steps=finetune_steps)
        check_at_least(
            0,
            kl_weight=kl_weight,
            encoder_penalty_weight=encoder_penalty_weight,
            orthogonality_weight=orthogonality_weight,
        )
        check_one_of(("exp", "relu"), spread=spread)
        check_one_of(("latents", "outputs"), orthogonal=orthogonal)
        check_below_one(dropout=dropout)
        self.latent_size = latent_size
        self.inner_lr = inner_lr
        self.inner_steps = inner_steps
        self.finetune_lr = finetune_lr
        self.finetune_steps = finetune_steps
        self.learned_rates = learned_rates
        self.kl_weight = kl_weight
        self.encoder_penalty_weight = encoder_penalty_weight
        self.orthogonality_weight = orthogonality_weight
        self.normalize = normalize
        self.dropout = dropout
        self.sample = sample
        self.bias = bias
        self.spread = spread
        self.orthogonal = orthogonal
        self.first_order = first_order

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create encoder, relation network, decoder and learned rates for vectors ``(D,)``."""
        del n_base_classes, backbone
        size, both = item_shape[0], 2 * self.latent_size
        self.encode = nn.Linear(size, self.latent_size, bias=self.bias)
        self.relate = nn.Sequential(
            nn.Linear(both, both, bias=False),
            nn.ReLU(),
            nn.Linear(both, both, bias=False),
            nn.ReLU(),
            nn.Linear(both, both, bias=False),
        )
        self.decode = nn.Linear(self.latent_size, 2 * size, bias=self.bias)
        for layer in (self.encode, *self.relate, self.decode):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
        self.inner_rate = self.finetune_rate = None
        if self.learned_rates:
            self.inner_rate = nn.Parameter(torch.full((self.latent_size,), self.inner_lr))
            self.finetune_rate = nn.Parameter(torch.full((size,), self.finetune_lr))

    def embed(self, items: Tensor) -> Tensor:
        """Scale vectors ``(n, D)`` to length 1."""
        return functional.normalize(items, dim=1) if self.normalize else items

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the logits of the adapted classifiers, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.
        """
        return self._adapted(support, query).logits

    def loss(self, batch: Batch) -> Tensor:
        """Return the queries' cross-entropy plus the weighted penalties."""
        assert batch.query_labels is not None
        adapted = self._adapted(*self.embed_episode(batch))
        of_queries = functional.cross_entropy(
            adapted.logits.flatten(0, 1), batch.query_labels.flatten()
        )
        return (
            of_queries
            + self.kl_weight * adapted.divergence
            + self.encoder_penalty_weight * adapted.distance
            + self.orthogonality_weight * self._orthogonality()
        )

    def _adapted(self, support: Tensor, query: Tensor) -> _Adapted:
        """Do everything of an episode except the loss."""
        # Steps on long vectors amplify rounding: half precision would spoil them.
        with torch.autocast(query.device.type, enabled=False):
            dtype = self.decode.weight.dtype
            support, query = support.to(dtype), query.to(dtype)
            mean, deviation = self._codes(support)
            first = mean
            if self.training and self.sample:
                first = mean + deviation * torch.randn_like(deviation)
            codes, weight = self._descended(support, first)
            rate = self.finetune_lr if self.finetune_rate is None else self.finetune_rate
            weight, _ = fitted(
                support,
                weight,
                None,
                rate=rate,
                steps=self.finetune_steps,
                second_order=not self.first_order,
            )
            return _Adapted(
                torch.bmm(query, weight.mT),
                _divergence(first, mean, deviation),
                (first - codes.detach()).square().mean(),
            )

    def _codes(self, support: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of the codes, each ``(tasks, way, latent_size)``.

        A class's values are the mean over all pairs of one of its images with any support image.
        """
        way, shot = support.shape[1:3]
        items = functional.dropout(support.flatten(1, 2), self.dropout, self.training)
        encoded = self.encode(items)
        first, second, third = (part for part in self.relate if isinstance(part, nn.Linear))
        # A pair's first layer is a sum over its two images, which needs no pairs.
        left, right = first.weight.chunk(2, dim=1)
        pairs = (encoded @ left.mT)[:, :, None] + (encoded @ right.mT)[:, None]
        pairs = functional.relu_(second(functional.relu_(pairs)))
        if self.spread == "relu":
            pairs = functional.relu_(third(pairs))
        numbers = pairs.unflatten(1, (way, shot)).mean(dim=(2, 3))
        if self.spread == "exp":
            numbers = third(numbers)  # linear, so the mean may come first
        mean, spread = numbers.chunk(2, dim=-1)
        return mean, self._deviation(spread, 0.0)

    def _descended(self, support: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Adapt codes ``(tasks, way, latent_size)`` and decode them.

        Returns:
            The codes after the last step, and their weights ``(tasks, way, D)``.
        """
        shot, size = support.shape[2:]
        items = support.flatten(1, 2)
        to_mean, to_spread = self.decode.weight.split(size)
        # As the decoder is linear, the logits of a code are, apart from noise, its products with
        # the items mapped by the decoder's columns. Its bias is the same for every way.
        seen = items @ to_mean
        rate = self.inner_lr if self.inner_rate is None else self.inner_rate
        for _ in range(self.inner_steps):
            noise = self._noise(codes)
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.first_order):
                logits = torch.bmm(codes, seen.mT)
                if noise is not None:
                    logits = torch.baddbmm(logits, noise.added, items.mT)
                residuals = (logits.softmax(dim=1) - one_hot_ways(logits, shot)) / items.shape[1]
                gradient = torch.bmm(residuals, seen)
                if noise is not None:
                    of_spread = torch.bmm(residuals, items) * noise.slope
                    gradient = gradient + of_spread @ to_spread
            codes = codes - rate * gradient
        bias = None if self.decode.bias is None else self.decode.bias[:size]
        weight = functional.linear(codes, to_mean, bias)
        noise = self._noise(codes)
        return codes, weight if noise is None else weight + noise.added

    def _noise(self, codes: Tensor) -> _Noise | None:
        """Draw the noise on the decoded means in training."""
        if not (self.training and self.sample):
            return None
        size = len(self.decode.weight) // 2
        bias = None if self.decode.bias is None else self.decode.bias[size:]
        spread = functional.linear(codes, self.decode.weight[size:], bias)
        drawn = torch.randn_like(spread)
        deviation = self._deviation(spread, math.sqrt(2 / (codes.shape[1] + size)))
        if self.spread == "relu":
            return _Noise(deviation * drawn, drawn)
        free = (deviation > _LEAST) & (spread < _MOST)
        slope = torch.where(free, spread.clamp(max=_MOST).exp() * drawn, 0.0)
        return _Noise(deviation * drawn, slope)

    def _deviation(self, spread: Tensor, at_zero: float) -> Tensor:
        """Turn outputs into deviations; with ``exp``, 0 becomes ``at_zero``."""
        if self.spread == "relu":
            return spread
        return (spread.clamp(max=_MOST).exp() - (1 - at_zero)).clamp(min=_LEAST)

    def _orthogonality(self) -> Tensor:
        """Return the mean squared distance of the rows' cosines from those of orthogonal ones."""
        rows = self.decode.weight.mT if self.orthogonal == "latents" else self.decode.weight
        rows = functional.normalize(rows, dim=1)
        # |R R' - 1|^2 = |R' R|^2 - n, as the cosine of a row with itself is 1, so the smaller of
        # the two products suffices.
        n = len(rows)
        small = rows.mT @ rows if n > rows.shape[1] else rows @ rows.mT
        return (small.square().sum() - n) / n**2


_LEAST = 1e-10
"""The smallest deviation."""

_MOST = 2.0
"""The largest output whose exponential is taken.

The gradient by a code grows with the deviations, and these exponentially with the code, so that
without a bound a single unlucky draw makes a code's step overflow.
"""


@dataclass(frozen=True)
class _Noise:
    """The noise on decoded means ``(tasks, way, D)``, and its derivative.

    Args:
        added: deviations times draws.
        slope: its derivative by the outputs that give the deviations.
    """

    added: Tensor
    slope: Tensor


@dataclass(frozen=True)
class _Adapted:
    """The result of an episode: logits ``(tasks, n, way)`` and the scalars of the penalties."""

    logits: Tensor
    divergence: Tensor
    distance: Tensor


def _divergence(codes: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Estimate from one draw how far the codes' Gaussians are from the standard one, per entry."""
    # Small enough to change no deviation but 0, which rectifiers give.
    deviation = deviation + 1e-20
    log_own = -torch.log(deviation) - ((codes - mean) / deviation).square() / 2
    return (log_own + codes.square() / 2).mean()
