"""Work that a launcher's workers do: what travels to them, and what happens if they die."""

from __future__ import annotations

import functools
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsframework.api.components import Given, component, plain
from fsframework.api.experiments import merged
from fsframework.api.session import Session, Workspace, open_session
from fsframework.errors import OptionError, Voice, speaking, voice
from fsframework.interfaces.launcher import Launcher, WorkerDied

__all__ = ["MOST_DEATHS", "mapped", "portable", "without_launcher", "worker_session"]

MOST_DEATHS = 3
"""An item whose workers died so often in a row without any progress is given up."""


def without_launcher(
    trees: Sequence[Mapping[str, Any]], session: Session
) -> tuple[Launcher | None, list[dict[str, Any]]]:
    """Return the launcher that trees of options ask for, if any, and the trees without it.

    Args:
        trees: of ``Given``; earlier ones take precedence.
        session: whose plugins are available.

    Raises:
        PluginError: the launcher is unknown or cannot be loaded.
        OptionError: an option of it is not allowed.
    """
    asked = merged(*({"launcher": tree["launcher"]} for tree in trees if "launcher" in tree))
    rest = [{key: node for key, node in tree.items() if key != "launcher"} for tree in trees]
    if not asked:
        return None, rest
    made: Launcher = component(session.registry, "launcher", asked["launcher"]).create()
    return made, rest


def portable(node: Any, name: str) -> Any:
    """Return a tree of ``Given`` as other processes can read it.

    Args:
        node: the tree.
        name: what it describes, for the message.

    Raises:
        OptionError: an option is a class or an object, which only this process knows.
    """
    if isinstance(node, Mapping):
        return {str(key): portable(value, name) for key, value in node.items()}
    if isinstance(node, list):
        return [portable(value, name) for value in node]
    given = node if isinstance(node, Given) else Given(node, "")
    value = plain(given.value)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise OptionError(
            f"{name}: {given.value!r} is known to this process only; to run it in others, put the "
            "class into a file, give the file with plugins, and name the class"
        ) from None
    return replace(given, value=value, instance=None)


@functools.lru_cache(maxsize=1)
def worker_session(workspace: Workspace, plugins: tuple[str, ...]) -> Session:
    """Return the session of a worker, which has the plugin classes of some files."""
    return open_session(
        runs_dir=workspace.runs, cache_dir=workspace.cache, plugins=plugins, progress=False
    )


def mapped(
    launcher: Launcher,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    name: str,
    logs: Path,
    progress: Callable[[int], object] = lambda index: None,
    died: Callable[[int, WorkerDied], None] = lambda index, end: None,
) -> Iterator[tuple[int, Any]]:
    """Yield the result of each item, as ``Launcher.map`` does, and try those again that died.

    Args:
        launcher: that calls the function.
        function: of a module.
        items: in the order in which they are taken.
        name: of the job.
        logs: folder for the workers' output; it is made.
        progress: what an item's last worker began with. If a later one began with something else,
            the earlier one has got on, and its death no longer counts.
        died: called at each death.

    Yields:
        Position and result, a ``WorkerDied`` for an item that is given up.
    """
    logs.mkdir(parents=True, exist_ok=True)
    left: Sequence[int] = range(len(items))
    deaths: dict[int, tuple[int, object]] = {}
    said = functools.partial(_speaking, voice(), function)
    with _sigterm_interrupts():
        while left:
            again = []
            chosen = [items[index] for index in left]
            with closing(launcher.map(said, chosen, name=name, logs=logs.absolute())) as found:  # type: ignore[type-var]
                for place, result in found:
                    index = left[place]
                    if isinstance(result, WorkerDied):
                        died(index, result)
                        count, before = deaths.get(index, (0, None))
                        now = progress(index)
                        deaths[index] = (count + 1 if now == before else 1), now
                        if deaths[index][0] < MOST_DEATHS:
                            again.append(index)
                            continue
                    yield index, result
            left = again


def _speaking(spoken: Voice, function: Callable[[Any], Any], item: Any) -> Any:
    with speaking(spoken):
        return function(item)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM interrupt this process as Ctrl-C does, so that workers are stopped.

    A handler of the user's stays, and only the main thread can set one.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
