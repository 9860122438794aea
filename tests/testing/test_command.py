"""Each check of commands rejects the one broken command made for it, and nothing else does."""

import subprocess
import sys
import uuid

import pytest

from fsframework.interfaces.command import Command
from fsframework.testing import checks_for

GOOD = '''
import click

@click.command()
@click.argument("run")
@click.option("--level", type=float, default=0.95, help="Level of intervals.")
@click.pass_context
def show(context, run, level):
    """Show the words that hurt most."""
    click.echo(f"{run} {level}")
'''
SUMMARY = "Show the words that hurt most."

BROKEN = {
    "check_loads": (GOOD.replace("import click", "raise SystemExit(3)"), SUMMARY),
    "check_path": (GOOD, SUMMARY, ("completion", "words")),
    "check_summary": (GOOD, "Show the words. They hurt most."),
    "check_described": (GOOD.replace('"""Show the words that hurt most."""', ""), SUMMARY),
    "check_options_described": (GOOD.replace(', help="Level of intervals."', ""), SUMMARY),
    "check_options_unique": (
        GOOD.replace(
            "@click.pass_context",
            '@click.option("--level", "other", help="Another.")\n@click.pass_context',
        ).replace("run, level)", "run, level, other)"),
        SUMMARY,
    ),
    "check_parameters_taken": (GOOD.replace("run, level)", "run)"), SUMMARY),
    "check_help": (
        GOOD.replace(
            "@click.command()",
            "class Mute(click.Command):\n"
            "    def format_help(self, ctx, formatter):\n"
            "        raise RuntimeError('no help')\n\n"
            "@click.command(cls=Mute)",
        ),
        SUMMARY,
    ),
    "check_help_same": (
        GOOD.replace("import click", "import click, os").replace('"Level of', 'os.getcwd() + "'),
        SUMMARY,
    ),
    "check_help_light": (GOOD.replace("import click", "import click, pandas"), SUMMARY),
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that writes a module with a command and returns what the checks take."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pandas.py").write_text("")  # it is the name that counts

    def write(source, summary=SUMMARY, path=("runs", "words"), target="show"):
        name = f"toy_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(source)
        command = Command(
            name="show-words",
            target=f"{name}:{target}",
            path=path,
            summary=summary,
            group="Results",
        )
        return lambda: command

    yield write
    for name in [name for name in sys.modules if name.startswith("toy_") or name == "pandas"]:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_sound_command_passes(written, failing):
    assert failing(written(GOOD), "command") == set()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, written, failing):
    assert failing(written(*BROKEN[name]), "command") == {name}


def test_every_check_has_its_broken_command():
    assert list(BROKEN) == [check.__name__ for check in checks_for("command")]


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ("show the words.", "capital"),
        ("Show the words", "period"),
        ("", "capital"),
        ("Show " + "words " * 20 + "now.", "at most 100 characters, not 129"),
    ],
)
def test_what_is_wrong_with_a_summary_is_said(summary, message, written):
    [check] = [c for c in checks_for("command") if c.__name__ == "check_summary"]
    with pytest.raises(AssertionError, match=message):
        check(written(GOOD, summary))


def test_commands_of_a_group_are_checked_too(written, failing):
    group = (
        GOOD.replace(', help="Level of intervals."', "")
        + '\n@click.group()\ndef words():\n    """Words."""\n\nwords.add_command(show)\n'
    )
    assert failing(written(group, target="words"), "command") == {"check_options_described"}


def test_a_target_that_is_no_command(written, failing):
    assert failing(written("show = 3"), "command") == {"check_loads"}


def test_a_command_of_the_core_is_checked_from_the_command_line(fsf):
    done = fsf("plugins", "check", "completion")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "command completion: 10 passed, 0 failed, 0 skipped"


def test_checks_of_commands_do_not_import_torch():
    code = (
        "import sys, fsframework.testing as t\n"
        "print([r for r in t.check_component(t.installed_command('runs')) if not r.passed])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]
