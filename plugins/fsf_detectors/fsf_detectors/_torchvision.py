"""Loading Transformers even if the compiled part of torchvision does not load."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys

__all__ = ["mend_torchvision"]


@functools.lru_cache(maxsize=1)
def mend_torchvision() -> object:
    """Make ``import torchvision`` work if its wheel was built for another PyTorch.

    Transformers imports torchvision if it is installed. If the compiled operators do not load, that
    import fails because two of them are missing when their meta kernels are registered. Declaring
    them without an implementation lets the import succeed. Nothing here calls them, because Pillow
    resizes the images. If torchvision works or is not installed, nothing happens.

    Returns:
        An object that keeps the declarations alive, or ``None``.
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
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
    return library
