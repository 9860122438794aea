"""The contracts that plugins fulfil; importing this package imports neither torch nor a plugin.

A name is loaded from its file on first use, so samplers and statistics never import torch.
"""

from __future__ import annotations

from typing import Any

from fsframework._lazy import lazily

__all__, _find = lazily(
    __name__,
    {
        "._calls": ("checked", "contained"),
        ".errors": ("DataError", "InfeasibleTask", "OptionError"),
        ".interfaces.backbone": ("Backbone", "Preprocessing"),
        ".interfaces.checks": ("check_above", "check_at_least", "check_below_one", "check_one_of"),
        ".interfaces.component": ("Configurable",),
        ".interfaces.dataset": ("About", "Dataset", "Decoding"),
        ".interfaces.detector": ("AttributeDetector", "Captioner", "ImageTextModel"),
        ".interfaces.launcher": ("Launcher", "WorkerDied"),
        ".interfaces.method": ("Batch", "FewShotMethod", "Known"),
        ".interfaces.sampler": ("Control", "TaskSampler"),
        ".interfaces.selector": ("WordSelector",),
        ".interfaces.statistic": ("Statistic",),
        ".interfaces.views": ("ViewMaker", "Views"),
        ".interfaces.wrapping": ("MethodWrapper",),
    },
)


def __getattr__(name: str) -> Any:
    return _find(name)


def __dir__() -> list[str]:
    return list(__all__)
