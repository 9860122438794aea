"""timm, imported on first use, even if the installed torchvision does not load."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from types import ModuleType
from typing import Any

import torch

from fsf_timm._packages import installed_models
from fsframework.errors import install_hint
from fsframework.interfaces import OptionError

__all__ = ["create", "load_timm", "model_names", "pretrained_config", "whole_state"]


@functools.lru_cache(maxsize=1)
def load_timm() -> ModuleType:
    """Import timm.

    Raises:
        OptionError: timm or the torchvision that it needs cannot be imported.
    """
    try:
        _mend_torchvision()
        return importlib.import_module("timm")
    # A wheel for another PyTorch fails in various ways: RuntimeError, OSError, ImportError.
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise OptionError(
            f"timm cannot be imported ({reason}); install timm and a torchvision built for "
            f"PyTorch {torch.__version__}: {install_hint('timm torchvision')}"
        ) from error


@functools.cache
def _mend_torchvision() -> torch.library.Library | None:
    """Make ``import torchvision`` work if its wheel was built for another PyTorch.

    If the compiled operators do not load, the import fails because two of them are missing when
    their meta kernels are registered. Declaring them without an implementation lets the import
    succeed; no timm model calls them. If torchvision works or is not installed, nothing happens.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return None
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    else:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
    return library  # kept, or its declarations would end with it


def model_names() -> list[str]:
    """Return the names of all architectures, without and with the tags of published weights."""
    timm = load_timm()
    return [*timm.list_models(), *timm.list_pretrained()]


def pretrained_config(model: str) -> dict[str, Any]:
    """Return timm's configuration of a model and its published weights.

    Raises:
        OptionError: timm does not have the model or the weights.
    """
    if not model:
        raise OptionError("model must be a name that timm lists, as in timm:resnet18")
    timm = load_timm()
    if ":" in model or "/" in model:
        raise OptionError(
            f"model must be a name that timm lists, such as resnet18, got {model!r}; pass other "
            "weights with weights=FILE"
        )
    architecture, _, tag = model.partition(".")
    if not timm.is_model(architecture):
        raise OptionError(f"timm has no model {model!r}{_close(model, model_names())}")
    try:
        config = timm.models.get_pretrained_cfg(model, allow_unregistered=not tag)
    except RuntimeError:
        known = [n for n in timm.list_pretrained() if n.partition(".")[0] == architecture]
        raise OptionError(
            f"timm has no weights {tag!r} for {architecture}; it has {', '.join(known) or 'none'}"
        ) from None
    found: dict[str, Any] = {} if config is None else config.to_dict()
    return found


def _close(name: str, known: list[str]) -> str:
    # Tags are long, so architectures are also compared without them.
    name = name.lower()
    bare = name.partition(".")[0]
    shorter = sorted({k.partition(".")[0] for k in known})
    # Weights that are installed come first: they need no network.
    here = [k for k in installed_models() if bare and k.startswith(bare)]
    close = here or [k for k in shorter if bare and k.startswith(f"{bare}_")][:4]
    close = close or difflib.get_close_matches(name, known, n=3, cutoff=0.75)
    close = close or difflib.get_close_matches(bare, shorter, n=3, cutoff=0.6)
    # Other libraries have other names for the same models, such as dinov2_vits14.
    for word in sorted(bare.replace("-", "_").split("_"), key=len, reverse=True):
        close = close or [k for k in shorter if len(word) > 3 and word in k][:4]
    if not close:
        return " and none with a similar name"
    return f"; did you mean {', '.join(close)}?" + (" (installed)" if here else "")


def create(model: str, image_size: int | None) -> Any:
    """Build a model with random weights and no classifier, for images of any size if possible.

    Transformers that can resample their position embeddings in every forward pass do so; only some
    of the others can be built for another size.
    """
    timm = load_timm()
    wishes: list[dict[str, Any]] = [{"dynamic_img_size": True}, {}]
    if image_size is not None:
        wishes.insert(1, {"img_size": image_size})
    for wish in wishes[:-1]:
        try:
            return timm.create_model(model, pretrained=False, num_classes=0, **wish)
        except TypeError as error:
            if next(iter(wish)) not in str(error):
                raise
    return timm.create_model(model, pretrained=False, num_classes=0)


def whole_state(model: str) -> dict[str, Any]:
    """Return the state dict of a model, classifier included, in timm's order.

    The tensors are on the ``meta`` device: they have no values.
    """
    with torch.device("meta"):
        net = load_timm().create_model(model, pretrained=False)
    found: dict[str, Any] = net.state_dict()
    return found
