"""Help: sections, whole summaries, and nothing imported for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from fsframework.cli.groups import SECTIONS, InstalledEntry
from fsframework.cli.main import cli
from fsframework.cli.options import command, group, section, shared
from fsframework.components.options import MAIN_OPTIONS
from fsframework.components.options import SECTIONS as HELP_SECTIONS
from fsframework.components.registry import Registry
from tests.conftest import Fsf


def sections_of(text: str) -> dict[str, str]:
    """Return the text below each heading of a help page."""
    found: dict[str, str] = {}
    title = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
            found[title] = ""
        elif title:
            found[title] += line + "\n"
    return found


def test_every_command_is_listed_in_its_section_with_its_whole_summary(fsf: Fsf) -> None:
    shown = fsf("--help").stdout
    sections = sections_of(shown)
    assert [title for title in sections if title in SECTIONS] == list(SECTIONS)
    assert "..." not in shown.partition("Measure:")[2]
    assert all(len(line) <= 80 for line in shown.partition("Measure:")[2].splitlines())
    for one in Registry().commands:
        if len(one.command.path) == 1:
            told = " ".join(sections[one.command.group].split())
            assert f"{one.command.name} {one.command.summary}" in told


@pytest.mark.parametrize("arguments", [[], ["data"], ["plugins"], ["tasks"]])
def test_a_group_without_arguments_prints_its_help_as_help(fsf: Fsf, arguments: list[str]) -> None:
    done = fsf(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == fsf(*arguments, "--help").stdout
    assert done.stdout.startswith(f"Usage: {' '.join(['fsf', *arguments])} ")
    verbose = fsf("--verbose", *arguments)
    assert (verbose.returncode, verbose.stdout) == (0, done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rum"], "fsf: unknown command 'rum' (did you mean 'run'?) (see fsf --help)"),
        (["data", "lst"], "unknown command 'lst' (did you mean 'list'?) (see fsf data --help)"),
        (
            ["zzz"],
            "fsf: unknown command 'zzz'; packages bring more: cd ",
        ),
    ],
)
def test_an_unknown_command_is_told_the_nearest(
    fsf: Fsf, arguments: list[str], message: str
) -> None:
    done = fsf(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_help_of_a_run_begins_with_the_options_most_people_need(fsf: Fsf) -> None:
    sections = sections_of(fsf("run", "--help").stdout)
    titles = list(sections)
    assert titles[titles.index(MAIN_OPTIONS) :] == [
        *HELP_SECTIONS,
        "Configuration",
        "Other options",
    ]
    main = [line.split()[0] for line in sections[MAIN_OPTIONS].splitlines() if line[2:3] == "-"]
    assert main == [
        "--method", "--sampler", "--dataset", "--backbone", "--shot", "--attributes", "--tasks",
        "--device",
    ]  # fmt: skip


def commands_below(one: click.Command) -> Iterator[click.Command]:
    """Yield a command and all commands of the group that it is."""
    loaded = one.load() if isinstance(one, InstalledEntry) else one
    yield loaded
    if isinstance(loaded, click.Group):
        context = click.Context(loaded)
        for name in loaded.list_commands(context):
            inner = loaded.get_command(context, name)
            assert inner is not None
            yield from commands_below(inner)


def test_no_help_shows_the_marks_that_lay_it_out() -> None:
    found = list(commands_below(cli))
    assert len(found) > 30
    assert [one.name for one in found if "\\b" in (one.help or "")] == []


def test_a_command_of_a_plugin_gets_the_same_sections() -> None:
    @command()
    @shared("dataset", "way", "method")
    @click.option("--colour", help="Of the lines.")
    @section("Figure", click.option("--width", help="In inches."))
    def draw(**given: object) -> None:
        """Draw."""
        click.echo(f"{given['method']} {given['width']}")

    shown = CliRunner().invoke(draw, ["--help"])
    assert shown.exit_code == 0, shown.output
    sections = sections_of(shown.output)
    assert list(sections) == [
        MAIN_OPTIONS, "Options of this command", "Figure", "Tasks", "Other options",
    ]  # fmt: skip
    assert sections[MAIN_OPTIONS].index("--method") < sections[MAIN_OPTIONS].index("--dataset")
    ran = CliRunner().invoke(draw, ["--method", "renet", "--width", "3"])
    assert ran.output == "renet 3\n"


def test_a_command_with_options_of_its_own_alone_has_one_section() -> None:
    @command()
    @click.option("--colour", help="Of the lines.")
    def draw(colour: str) -> None:
        """Draw."""

    assert list(sections_of(CliRunner().invoke(draw, ["--help"]).output)) == ["Options"]


def test_a_group_used_by_itself_has_only_its_own_commands() -> None:
    @group()
    def alone() -> None:
        """Stand alone."""

    @alone.command("inner")
    def inner() -> None:
        """Be inside of a group whose summary is much longer than what fits into one line of 80."""

    shown = CliRunner().invoke(alone, []).output
    assert "longer than what fits into one line of 80." in " ".join(shown.split())
    assert list(sections_of(shown)) == ["Options", "Commands"]


def test_help_imports_neither_a_plugin_nor_what_is_heavy() -> None:
    code = (
        "import sys; sys.argv = ['fsf', *sys.argv[1:]]\n"
        "from fsframework.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "tops = {m.partition('.')[0] for m in sys.modules}\n"
        "own = {m for m in sys.modules if m.startswith('fsframework.cli.')}\n"
        "heavy = tops & {'torch', 'numpy', 'rich'}\n"
        "print(heavy | {m for m in tops if m.startswith('fsf_')}, sorted(own), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "set() ['fsframework.cli.groups', 'fsframework.cli.main']\n"
