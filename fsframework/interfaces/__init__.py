"""The contracts that plugins fulfil; importing this package imports neither torch nor a plugin.

A name is loaded from its file on first use, so samplers and statistics never import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsframework._calls import checked, contained
    from fsframework.errors import DataError, InfeasibleTask, OptionError
    from fsframework.interfaces.backbone import Backbone, Preprocessing
    from fsframework.interfaces.checks import (
        check_above,
        check_at_least,
        check_below_one,
        check_one_of,
    )
    from fsframework.interfaces.component import Configurable
    from fsframework.interfaces.dataset import About, Dataset, Decoding
    from fsframework.interfaces.detector import AttributeDetector, Captioner, ImageTextModel
    from fsframework.interfaces.launcher import Launcher, Work, Workers, WorkerState
    from fsframework.interfaces.method import Batch, FewShotMethod
    from fsframework.interfaces.sampler import Control, TaskSampler
    from fsframework.interfaces.selector import WordSelector
    from fsframework.interfaces.statistic import Statistic
    from fsframework.interfaces.views import ViewMaker, Views
    from fsframework.interfaces.wrapping import MethodWrapper

__all__ = [
    "About",
    "AttributeDetector",
    "Backbone",
    "Batch",
    "Captioner",
    "Configurable",
    "Control",
    "DataError",
    "Dataset",
    "Decoding",
    "FewShotMethod",
    "ImageTextModel",
    "InfeasibleTask",
    "Launcher",
    "MethodWrapper",
    "OptionError",
    "Preprocessing",
    "Statistic",
    "TaskSampler",
    "ViewMaker",
    "Views",
    "WordSelector",
    "Work",
    "WorkerState",
    "Workers",
    "check_above",
    "check_at_least",
    "check_below_one",
    "check_one_of",
    "checked",
    "contained",
]

_HOME = {
    "About": "fsframework.interfaces.dataset",
    "AttributeDetector": "fsframework.interfaces.detector",
    "Backbone": "fsframework.interfaces.backbone",
    "Batch": "fsframework.interfaces.method",
    "Captioner": "fsframework.interfaces.detector",
    "Control": "fsframework.interfaces.sampler",
    "Configurable": "fsframework.interfaces.component",
    "DataError": "fsframework.errors",
    "Dataset": "fsframework.interfaces.dataset",
    "Decoding": "fsframework.interfaces.dataset",
    "FewShotMethod": "fsframework.interfaces.method",
    "ImageTextModel": "fsframework.interfaces.detector",
    "InfeasibleTask": "fsframework.errors",
    "Launcher": "fsframework.interfaces.launcher",
    "MethodWrapper": "fsframework.interfaces.wrapping",
    "OptionError": "fsframework.errors",
    "Preprocessing": "fsframework.interfaces.backbone",
    "Statistic": "fsframework.interfaces.statistic",
    "TaskSampler": "fsframework.interfaces.sampler",
    "ViewMaker": "fsframework.interfaces.views",
    "Views": "fsframework.interfaces.views",
    "WordSelector": "fsframework.interfaces.selector",
    "Work": "fsframework.interfaces.launcher",
    "WorkerState": "fsframework.interfaces.launcher",
    "Workers": "fsframework.interfaces.launcher",
    "check_above": "fsframework.interfaces.checks",
    "check_at_least": "fsframework.interfaces.checks",
    "check_below_one": "fsframework.interfaces.checks",
    "check_one_of": "fsframework.interfaces.checks",
    "checked": "fsframework._calls",
    "contained": "fsframework._calls",
}


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return list(__all__)
