"""What `import fsframework` costs and offers."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import fsframework as fsf


def test_importing_imports_nothing_heavy() -> None:
    code = (
        "import sys, fsframework as fsf; fsf.__dir__();"
        "heavy = {'torch', 'numpy', 'scipy', 'click', 'rich', 'pyarrow'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "fsf.run; assert not any(name.startswith('fsf_') for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_once_and_documented() -> None:
    for name in fsf.__all__:
        found = getattr(fsf, name)
        assert found.__doc__, name
        assert getattr(fsf, name) is found
        assert pickle.loads(pickle.dumps(found)) is found
    assert set(fsf.__all__) <= set(dir(fsf))


def test_type_checkers_know_the_names_that_are_there_from_the_same_modules() -> None:
    stub = ast.parse(Path(fsf.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    named = {alias.name: node.module for node in imports for alias in node.names}
    assert sorted(named) == list(fsf.__all__)
    for name, module in named.items():
        assert module is not None
        found = inspect.unwrap(getattr(fsf, name))
        assert getattr(sys.modules[module], name) is found
