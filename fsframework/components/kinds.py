"""The kinds of plugins: the only list of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["COMPONENTS", "KINDS", "Kind", "kind_of"]


@dataclass(frozen=True)
class Kind:
    """A kind of plugin.

    Args:
        group: entry-point group of its plugins.
        module: of its interface; imported only when it is needed.
        interface: name of the interface in ``module``.
    """

    group: str
    module: str
    interface: str

    def load(self) -> type[Any]:
        """Import and return the interface."""
        cls: type[Any] = getattr(importlib.import_module(self.module), self.interface)
        return cls


COMPONENTS: Mapping[str, Kind] = MappingProxyType(
    {
        "backbone": Kind("fsframework.backbones", "fsframework.interfaces.backbone", "Backbone"),
        "benchmark": Kind(
            "fsframework.benchmarks", "fsframework.interfaces.benchmark", "Benchmark"
        ),
        "dataset": Kind("fsframework.datasets", "fsframework.interfaces.dataset", "Dataset"),
        "detector": Kind(
            "fsframework.detectors", "fsframework.interfaces.detector", "AttributeDetector"
        ),
        "importer": Kind(
            "fsframework.importers", "fsframework.interfaces.importer", "CheckpointImporter"
        ),
        "launcher": Kind("fsframework.launchers", "fsframework.interfaces.launcher", "Launcher"),
        "method": Kind("fsframework.methods", "fsframework.interfaces.method", "FewShotMethod"),
        "page": Kind("fsframework.pages", "fsframework.interfaces.page", "PageWriter"),
        "renderer": Kind("fsframework.renderers", "fsframework.interfaces.renderer", "Renderer"),
        "sampler": Kind("fsframework.samplers", "fsframework.interfaces.sampler", "TaskSampler"),
        "section": Kind("fsframework.sections", "fsframework.interfaces.section", "Section"),
        "selector": Kind(
            "fsframework.selectors", "fsframework.interfaces.selector", "WordSelector"
        ),
        "statistic": Kind(
            "fsframework.statistics", "fsframework.interfaces.statistic", "Statistic"
        ),
        "table": Kind("fsframework.tables", "fsframework.interfaces.table", "TableWriter"),
        "view": Kind("fsframework.views", "fsframework.interfaces.views", "ViewMaker"),
    }
)
"""The kinds whose plugins are subclasses of an interface, with options."""

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        **COMPONENTS,
        "command": Kind("fsframework.commands", "fsframework.interfaces.command", "Command"),
    }
)
"""Every kind of plugin, by its name in messages and for ``--kind``."""


def kind_of(component: object) -> str | None:
    """Return the kind of a component or of a class, ``None`` for anything else.

    >>> from fsframework.interfaces import Statistic
    >>> kind_of(Statistic), kind_of(int)
    ('statistic', None)
    """
    cls = component if isinstance(component, type) else type(component)
    for name, kind in KINDS.items():
        # A subclass exists only if its interface was imported: no need to import torch here.
        module = sys.modules.get(kind.module)
        if module is not None and issubclass(cls, getattr(module, kind.interface)):
            return name
    return None
