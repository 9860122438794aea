"""Commands of distributions: what is known without importing them, and what can be wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Fsf

Package = Callable[..., None]

TOML = '[{}]\nsummary = "Say hello."\ngroup = "Results"\n'
HELLO = """
import click

@click.command()
def hello():
    "Say hello."
    click.echo("hello")

@click.group()
def outer():
    "Greets."

@outer.command()
def own():
    "Is here already."
    click.echo("own")

NUMBER = 3
"""


@pytest.fixture
def package(distribution: Callable[..., None], tmp_path: Path) -> Package:
    """Install a made-up distribution whose package has commands."""

    def install(
        name: str, commands: dict[str, str], toml: str | None = None, source: str = HELLO
    ) -> None:
        folder = tmp_path / "site" / name.replace("-", "_")
        folder.mkdir()
        (folder / "__init__.py").write_text(source)
        if toml is None:
            toml = "".join(TOML.format(key) for key in commands)
        (folder / "commands.toml").write_text(toml)
        distribution(name, {"fsframework.commands": commands})

    return install


def status(fsf: Fsf, name: str, *more: str) -> list[str]:
    """Return the status of the commands of a name, by distribution."""
    done = fsf("plugins", "list", "--kind", "command", "--json", *more)
    assert done.returncode == 0
    return [row["status"] for row in json.loads(done.stdout) if row["name"] == name]


def test_a_command_is_described_without_importing_its_package(package: Package, fsf: Fsf) -> None:
    package("toy-one", {"hello": "toy_one:hello"})
    listed = fsf("--help").stdout
    assert "  hello       Say hello.\n" in listed.partition("Results:")[2]
    assert "toy_one" not in sys.modules
    done = fsf("hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_a_path_hangs_a_command_into_a_group_of_the_core(package: Package, fsf: Fsf) -> None:
    package(
        "toy-one", {"say-hello": "toy_one:hello"}, TOML.format("say-hello") + 'path = "data hello"'
    )
    listed = fsf("data")
    assert listed.returncode == 0
    assert "  hello       Say hello.\n" in listed.stdout
    assert "  list        List data sets" in listed.stdout
    assert "toy_one" not in sys.modules
    assert fsf("data", "hello").stdout == "hello\n"
    assert "hello" not in fsf("runs").stdout


def test_a_path_makes_the_group_that_no_package_has(package: Package, fsf: Fsf) -> None:
    toml = TOML.format("say-hello") + 'path = "greet hello"\n'
    package("toy-one", {"say-hello": "toy_one:hello"}, toml)
    toml = TOML.format("say-bye").replace("hello", "bye") + 'path = "greet more bye"\n'
    package("toy-two", {"say-bye": "toy_two:hello"}, toml)
    assert "  greet       Has the commands hello, more bye.\n" in fsf("--help").stdout
    assert "  hello  Say hello.\n" in fsf("greet").stdout
    assert "toy_one" not in sys.modules
    assert fsf("greet", "hello").stdout == "hello\n"
    assert fsf("greet", "more", "bye").stdout == "hello\n"
    assert "unknown command 'helo' (did you mean 'hello'?)" in fsf("greet", "helo").stderr


def test_commands_hang_into_a_group_made_with_click_alone(package: Package, fsf: Fsf) -> None:
    package("toy-one", {"outer": "toy_one:outer"})
    package("toy-two", {"inner": "toy_two:hello"}, TOML.format("inner") + 'path = "outer inner"')
    listed = fsf("outer")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "  inner  Say hello.\n" in listed.stdout
    assert "toy_two" not in sys.modules
    assert fsf("outer", "inner").stdout == "hello\n"
    assert fsf("outer", "own").stdout == "own\n"


@pytest.mark.parametrize(
    ("toml", "cause"),
    [
        ("[[", "commands.toml cannot be read as TOML (Invalid initial"),
        ("hello = 3", "commands.toml of toy_one has no table [hello]"),
        ("[hello]\ngroup = 'Results'", "[hello] in commands.toml lacks summary"),
        ("[hello]\nsummary = 'Say.'\ngroup = 3", "must be one line of text, not 3"),
        (TOML.format("hello") + "paht = 'x'", "unknown key 'paht' (did you mean 'path'?)"),
        (TOML.format("hello") + "path = 'Data add'", "not 'Data add'"),
    ],
)
def test_a_damaged_description_is_a_row_and_an_error(
    package: Package, fsf: Fsf, toml: str, cause: str
) -> None:
    package("toy-one", {"hello": "toy_one:hello"}, toml)
    assert cause in status(fsf, "hello")[0]
    shown = fsf("--help")
    assert shown.returncode == 0
    assert "Broken (see fsf plugins list --kind command):\n  hello " in shown.stdout
    done = fsf("hello")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    for part in ("command 'hello'", "toy_one:hello", "toy-one 1.0", cause, "hint: "):
        assert part in line
    assert "toy_one" not in sys.modules


def test_a_module_that_is_no_package_cannot_be_described(
    distribution: Callable[..., None], fsf: Fsf
) -> None:
    distribution("toy-one", {"fsframework.commands": {"hello": "toy_file:hello"}}, "toy_file", "")
    distribution("toy-two", {"fsframework.commands": {"gone": "toy_gone:hello"}})
    assert "toy_file has no file commands.toml" in status(fsf, "hello")[0]
    assert "no module named 'toy_gone'" in status(fsf, "gone")[0]
    assert fsf("runs", "list").returncode == 0


@pytest.mark.parametrize(
    ("source", "target", "cause"),
    [
        ("raise SystemExit", "hello", "cannot be imported: SystemExit (hint"),
        (HELLO, "NUMBER", "is of type int, not a click command"),
    ],
)
def test_what_an_import_ends_in_is_one_sentence(
    package: Package, fsf: Fsf, source: str, target: str, cause: str
) -> None:
    package("toy-one", {"hello": f"toy_one:{target}"}, source=source)
    assert status(fsf, "hello") == ["ok"], "nothing of this is known before the import"
    assert "Say hello." in fsf("--help").stdout
    done = fsf("hello")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    for part in (f"command 'hello' (toy_one:{target}, from toy-one 1.0)", cause, "hint: "):
        assert part in line
    assert "broken: command 'hello'" in status(fsf, "hello", "--load")[0]
    assert fsf("plugins", "check", "hello").returncode == 2


def test_two_distributions_with_one_path_clash(package: Package, fsf: Fsf) -> None:
    package("toy-one", {"one": "toy_one:hello"}, TOML.format("one") + 'path = "data hello"')
    package("toy-two", {"two": "toy_two:hello"}, TOML.format("two") + 'path = "data hello"')
    assert "toy-two (two)" in status(fsf, "one")[0]
    assert "toy-one (one)" in status(fsf, "two")[0]
    listed = fsf("data")
    assert listed.returncode == 0
    assert "Broken (see fsf plugins list --kind command):\n  hello " in listed.stdout
    done = fsf("data", "hello")
    assert done.returncode == 2
    assert (
        "command 'data hello' is claimed by toy-one 1.0 (toy_one:hello) and toy-two 1.0 "
        "(toy_two:hello); uninstall one of them"
    ) in done.stderr
    assert fsf("data", "list").returncode == 0


def test_two_distributions_with_one_name_clash(package: Package, fsf: Fsf) -> None:
    package("toy-one", {"hello": "toy_one:hello"})
    package("toy-two", {"hello": "toy_two:hello"})
    first, second = status(fsf, "hello")
    assert "toy-two" in first
    assert "toy-one" in second
    done = fsf("hello")
    assert done.returncode == 2
    assert "command 'hello' is claimed by toy-one 1.0" in done.stderr


@pytest.mark.parametrize(
    ("path", "cause"), [("completion hello", "not a group"), ("plugins list", "of its own")]
)
def test_a_path_that_leads_elsewhere_fails_its_check(
    package: Package, fsf: Fsf, path: str, cause: str
) -> None:
    package("toy-one", {"hello": "toy_one:hello"}, TOML.format("hello") + f'path = "{path}"')
    checked = fsf("plugins", "check", "hello")
    assert checked.returncode == 1
    [line] = [line for line in checked.stdout.splitlines() if line.startswith("failed")]
    assert "check_path" in line
    assert cause in line
    assert fsf("data", "list").returncode == 0


def test_a_command_is_shown_with_its_facts_and_options(package: Package, fsf: Fsf) -> None:
    package("toy-one", {"hello": "toy_one:hello"}, TOML.format("hello") + 'path = "data hello"')
    shown = fsf("plugins", "show", "hello")
    assert shown.returncode == 0, shown.stderr
    for part in ("from toy-one 1.0", "fsf data hello", "Say hello.", "takes no options"):
        assert part in shown.stdout
