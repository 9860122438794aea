"""A fresh process that components are rebuilt in, with as much as possible other than here.

It has another ``PYTHONHASHSEED``, working folder and time zone, and its global generators are in a
state that nobody knows. What a process has hashed, imported or drawn before cannot affect it. It
starts with the first component and serves all later ones, since imports take seconds.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fsframework.components.kinds import kind_of
from fsframework.launchers.calls import module_path
from fsframework.testing._example import current, example
from fsframework.testing._random import scramble
from fsframework.testing._suite import Answers, ConformanceError, NotApplicable, options_of

__all__ = ["answers_in_fresh_process", "other_circumstances", "start_fresh_process"]

_OTHER = {"PYTHONHASHSEED": ("1", "2"), "TZ": ("Pacific/Kiritimati", "America/Adak")}


class _Process:
    """The fresh process, as this one sees it."""

    running: subprocess.Popen[bytes] | None = None
    folder: tempfile.TemporaryDirectory[str] | None = None
    serving = False
    """Whether this process is itself the fresh one."""


def start_fresh_process(modules: Iterable[str] = ()) -> None:
    """Start the fresh process, unless it runs, and let it import modules meanwhile."""
    if _Process.serving or (_Process.running is not None and _Process.running.poll() is None):
        return
    if _Process.folder is None:
        _Process.folder = tempfile.TemporaryDirectory(prefix="fsf-check-")
        atexit.register(_stop)
    _Process.running = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import _serve; _serve()", *modules],
        cwd=_Process.folder.name,
        env={**os.environ, **other_circumstances()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def other_circumstances() -> dict[str, str]:
    """Return variables of a process that can import what this one can, in other circumstances."""
    return {
        **{
            name: next(value for value in values if value != os.environ.get(name))
            for name, values in _OTHER.items()
        },
        "OMP_NUM_THREADS": "1",  # this process goes on with its own threads meanwhile
        "PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in module_path()),
        "PYTHONSAFEPATH": "1",
    }


def _stop() -> None:
    if _Process.running is not None:
        _Process.running.kill()
        _Process.running.wait()
    if _Process.folder is not None:
        _Process.folder.cleanup()


def answers_in_fresh_process(answers: Answers, component: object) -> Mapping[str, Any]:
    """Return what a component answers that is rebuilt from its class and options.

    Args:
        answers: a function of a module.
        component: its options are its own as far as they are stored.

    Raises:
        NotApplicable: the component cannot be rebuilt in another process.
        ConformanceError: it raises there.
    """
    if _Process.serving:
        raise NotApplicable("this is the fresh process")
    job = _pickled((answers, component, current()))
    start_fresh_process()
    process = _Process.running
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(job, process.stdin)
        process.stdin.flush()
        outcome, found = pickle.load(process.stdout)
    except (EOFError, BrokenPipeError):
        raise ConformanceError(f"it ended a fresh process with code {process.wait()}") from None
    if outcome == "answered":
        answered: Mapping[str, Any] = found
        return answered
    raise (NotApplicable if outcome == "unknown" else ConformanceError)(found)


class _Pickler(pickle.Pickler):
    """Writes a component as its class and its options."""

    def reducer_override(self, value: Any) -> Any:
        cls = type(value)
        if isinstance(value, type) or kind_of(value) is None or not hasattr(cls, "stored_as"):
            return NotImplemented
        if "<locals>" in cls.__qualname__:
            raise NotApplicable(
                f"{cls.__name__} is defined in a function, so no other process can import it"
            )
        options = {name: getattr(value, cls.stored_as.get(name, name)) for name in options_of(cls)}
        options |= {name: _absolute(options[name]) for name in cls.reads if name in options}
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        return _rebuilt, (cls.__module__, _absolute(file), cls.__qualname__, options)


def _absolute(value: Any) -> Any:
    """Return a path that another folder does not change; other values as they are."""
    if isinstance(value, (str, Path)) and value and Path(value).exists():
        return type(value)(Path(value).absolute())
    return value


def _pickled(value: object) -> bytes:
    written = io.BytesIO()
    try:
        _Pickler(written).dump(value)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise NotApplicable(f"an option cannot be passed to another process: {error}") from None
    return written.getvalue()


def _rebuilt(module: str, file: str | None, qualname: str, options: Mapping[str, Any]) -> Any:
    found: Any = _module(module, file)
    for name in qualname.split("."):
        found = getattr(found, name)
    return found(**options)


def _module(name: str, file: str | None) -> ModuleType:
    """Import a module, from its file where its name is not importable or names another module.

    That is the case for a script, a file given with ``--plugin`` and most test files.
    """
    try:
        module = importlib.import_module(name)
    except ImportError:
        module = None
    if module is not None and (file is None or getattr(module, "__file__", None) == file):
        return module
    if file is None:
        raise ImportError(f"no other process can import the module {name}")
    alias = f"fresh_{Path(file).stem}_{hashlib.sha256(file.encode()).hexdigest()[:8]}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return sys.modules[alias]


def _serve() -> None:
    """Answer for one component after the other, until the other process ends."""
    from fsframework.testing import _fresh

    _fresh._Process.serving = True
    jobs, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a component prints is not a result
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # what it starts reads no job
    for name in sys.argv[1:]:
        importlib.import_module(name)
    folder = Path.cwd()
    while True:
        try:
            job = pickle.load(jobs)
        except EOFError:
            return
        os.chdir(folder)
        if torch := sys.modules.get("torch"):  # whatever the last component set
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)
        pickle.dump(_outcome(job), results)
        results.flush()


def _outcome(job: bytes) -> tuple[str, Any]:
    try:
        answers, _, given = pickle.loads(job)
    except (ImportError, AttributeError) as error:
        return "unknown", f"no other process can import it: {error}"
    except (Exception, SystemExit) as error:
        return "raised", f"in a fresh process it raises {type(error).__name__}: {error}"
    scramble()
    try:
        with example(given.pool, **given.sizes):
            return "answered", dict(answers(lambda: pickle.loads(job)[1]))
    except NotApplicable as reason:
        return "unknown", str(reason)
    except (Exception, SystemExit) as error:
        return "raised", f"in a fresh process it raises {type(error).__name__}: {error}"
