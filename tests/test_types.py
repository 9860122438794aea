"""What a type checker says of the core, of right and wrong calls, and of what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import PAGES, ROOT, python_of

CALLS = ROOT / "tests" / "typed_calls.py"
SCRIPTS = [
    *ROOT.glob("docs/tutorials/*.py"),
    *ROOT.glob("examples/*.py"),
    *ROOT.glob("examples/*/shotwise/*.py"),
]
LOOSE = (
    "\n# mypy: allow-untyped-defs, allow-untyped-calls"
    '\n# mypy: disable-error-code="import-untyped,import-not-found"\n'
)
"""A reader's own functions need no annotations."""

Errors = dict[str, set[tuple[int, str]]]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """Lines and codes of the errors by file: one call of mypy for all, which loads torch once."""
    folder = tmp_path_factory.mktemp("typed")
    shown = {page: python_of(page, long=True) for page in [*PAGES, ROOT / "README.md"]}
    shown |= {path: path.read_text(encoding="utf-8") for path in SCRIPTS}
    files = {CALLS: CALLS.read_text(encoding="utf-8")}
    files |= {path: text + LOOSE for path, text in shown.items() if text}
    names = {re.sub(r"\W", "_", str(path.relative_to(ROOT))): path for path in files}
    for name, path in names.items():
        (folder / f"{name}.py").write_text(files[path], encoding="utf-8")
    modules = [word for name in names for word in ("-m", name)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--hide-error-context", "-p", "fsframework", *modules],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Errors = {}
    for file, line, code in re.findall(
        r"^(.+?):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE
    ):
        place = str(names.get(Path(file).stem, file))
        found.setdefault(place, set()).add((int(line), code))
    assert found or done.returncode == 0, done.stdout
    return found


def test_of_calls_the_wrong_ones_are_errors(errors: Errors) -> None:
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    marked = [
        (number, re.search(r"# error: ([\w-]+)$", line)) for number, line in enumerate(lines, 1)
    ]
    assert errors[str(CALLS)] == {(number, match[1]) for number, match in marked if match}


def test_the_core_and_what_the_pages_show_have_no_error(errors: Errors) -> None:
    assert {file: found for file, found in errors.items() if file != str(CALLS)} == {}


def test_the_types_of_options_are_those_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    from sitepages import options

    stub = options.STUB.read_text(encoding="utf-8")
    assert stub == options.signature(), "run docs/sitepages/options.py"
