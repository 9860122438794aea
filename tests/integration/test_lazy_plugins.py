"""Asking for one component imports no other component of its package."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"

# The packages are forgotten between two loads, so that one process can do for all of them.
LOAD_EACH = """
import json
import sys

from fsframework.components.registry import Registry

registry, seen = Registry(), []
for plugin in registry.plugins():
    if not plugin.distribution.startswith("fsf-") or plugin.kind == "command":
        continue
    for module in [name for name in sys.modules if name.startswith("fsf_")]:
        del sys.modules[module]
    cls = registry.load(plugin.kind, plugin.name)
    seen.append(
        {
            "plugin": f"{plugin.kind} {plugin.name}",
            "module": cls.__module__,
            "bases": [base.__module__ for base in cls.__mro__],
            "imported": [name for name in sys.modules if name.startswith("fsf_")],
        }
    )
print(json.dumps(seen))
"""


def test_a_component_is_loaded_without_its_siblings() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_EACH], capture_output=True, text=True, check=True
    )
    loads: list[dict[str, Any]] = json.loads(done.stdout)
    components = {load["module"] for load in loads}
    unwanted = {
        load["plugin"]: sorted(siblings)
        for load in loads
        if (siblings := components.intersection(load["imported"]).difference(load["bases"]))
    }
    assert unwanted == {}
    assert all(load["module"] in load["imported"] for load in loads)
    # It says something only where a package has components in several modules.
    assert len([name for name in components if name.startswith("fsf_methods.metric.")]) == 8


PACKAGES = sorted(
    ".".join(path.parent.relative_to(top).parts)
    for top in PLUGINS.iterdir()
    for path in top.glob("fsf_*/**/__init__.py")
    if "__getattr__" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", PACKAGES)
def test_every_name_of_a_package_is_found_and_seen_by_type_checkers(module: str) -> None:
    package = importlib.import_module(module)
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(getattr(package, name), "__name__", name) == name
    with pytest.raises(AttributeError, match="has no attribute 'Missing'"):
        package.Missing  # noqa: B018

    source = Path(str(package.__file__)).read_text(encoding="utf-8")
    imports = source.partition("if TYPE_CHECKING:\n")[2].partition("\n__all__")[0]
    imported = imports.replace("(", " ").replace(")", " ").replace(",", " ").split()
    assert set(package.__all__) <= set(imported)
