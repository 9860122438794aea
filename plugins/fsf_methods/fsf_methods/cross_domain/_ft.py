"""Feature-wise transformation."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fsf_methods.cross_domain._bases import need_learning
from fsframework.interfaces import Backbone, FewShotMethod, MethodWrapper, OptionError

__all__ = ["FT", "Transformation"]


class FT(MethodWrapper):
    """Scale and shift the channels of the backbone at random while another method is trained.

    Source: Tseng, Lee, Huang and Yang 2020, "Cross-Domain Few-Shot Classification via Learned
    Feature-Wise Transformation" (ICLR), section 3.2. After a BatchNorm layer, activations z become
    gamma * z + beta, with gamma from N(1, softplus(theta_gamma)) and beta from
    N(0, softplus(theta_beta)), standard deviations, one draw per channel that all images of a step
    share (equations 3 and 4). Only training is changed: in evaluation nothing is drawn, and
    features are computed once per image. The base decides everything else, its loss too.

    As in the authors' code, the softplus is log(1 + exp(100 t)) / 100, close to max(t, 0). The
    paper puts a transformation after the last BatchNorm of each residual block. A backbone does not
    say which these are, so ``layers`` names them; the default is every BatchNorm.

    Learning theta (the paper's section 3.3, algorithm 1) is not done. Each of its steps draws tasks
    of a pseudo-seen domain, takes a step of the model on them with transformations, and descends
    with theta on the loss of tasks of another, pseudo-unseen domain, without transformations. A
    training has one data set, and a step's ``Batch`` names base classes but no domains, so the two
    kinds of tasks cannot be told apart; two halves of a step would be tasks of one domain, which
    the algorithm is not for.

    Args:
        base: the method that is trained.
        layers: patterns of names of BatchNorm layers within the backbone, such as ``*.bn2``, the
            paper's choice for ``resnet10`` and ``resnet18``.
        theta_gamma: of the scales; the paper uses 0.3.
        theta_beta: of the shifts; the paper uses 0.5.

    Raises:
        OptionError: an option is outside its range, the base learns nothing, or no layer of the
            backbone fits ``layers``.
    """

    def __init__(
        self,
        *,
        base: FewShotMethod,
        layers: tuple[str, ...] = ("*",),
        theta_gamma: float = 0.3,
        theta_beta: float = 0.5,
    ) -> None:
        super().__init__(base=base)
        need_learning(base)
        for name, value in (("theta_gamma", theta_gamma), ("theta_beta", theta_beta)):
            if not abs(value) < float("inf"):
                raise OptionError(f"{name} must be finite, got {value}")
        if not layers:
            raise OptionError("layers must name at least one layer")
        self.layers = tuple(layers)
        self.theta_gamma = theta_gamma
        self.theta_beta = theta_beta

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base, and put a transformation after each layer of the backbone."""
        super().build(item_shape, n_base_classes, backbone)
        norms = {n: m for n, m in backbone.named_modules() if isinstance(m, _BatchNorm)}
        chosen = [n for n in norms if any(fnmatchcase(n, pattern) for pattern in self.layers)]
        if not chosen:
            known = ", ".join(norms) or "none"
            raise OptionError(
                f"layers must name BatchNorm layers of the backbone, got {', '.join(self.layers)}; "
                f"it has {known}"
            )
        self.transformations = nn.ModuleList()
        for name in chosen:
            made = Transformation(norms[name].num_features, self.theta_gamma, self.theta_beta)
            norms[name].register_forward_hook(made)
            self.transformations.append(made)


class Transformation(nn.Module):
    """Scales and shifts what a BatchNorm layer returns, as a hook of that layer.

    It acts only while both are in training mode, which it enters when the method is trained: a
    backbone may be trained by other methods before and after.

    Args:
        width: channels.
        theta_gamma: softplus of it is the standard deviation of the scales.
        theta_beta: softplus of it is the standard deviation of the shifts.
    """

    gamma: Tensor
    beta: Tensor

    def __init__(self, width: int, theta_gamma: float, theta_beta: float) -> None:
        super().__init__()
        # Options decide them, so they are not saved.
        self.register_buffer("gamma", torch.full((width,), float(theta_gamma)), persistent=False)
        self.register_buffer("beta", torch.full((width,), float(theta_beta)), persistent=False)
        self.eval()

    def forward(self, norm: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Transform the output ``(n, C, ...)`` of a layer."""
        del inputs
        if not (self.training and norm.training):
            return output
        shape = (1, len(self.gamma), *[1] * (output.ndim - 2))
        gamma = 1 + self._drawn(self.gamma).reshape(shape)
        beta = self._drawn(self.beta).reshape(shape)
        return (gamma * output + beta).to(output.dtype)

    def _drawn(self, theta: Tensor) -> Tensor:
        """Return one draw per channel, ``(C,)``."""
        return torch.randn(len(theta), device=theta.device) * functional.softplus(theta, beta=100)
