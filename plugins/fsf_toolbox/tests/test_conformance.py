"""The commands keep what every command of `fsf` must."""

from typing import Any

from fsframework.testing import parametrize_with_checks
from fsframework.testing.command import installed_command

NAMES = (
    *("attributes-agree", "attributes-show", "attributes-stats"),
    "tasks-show",
)


@parametrize_with_checks([installed_command(name) for name in NAMES])
def test_the_commands_are_sound(make: Any, check: Any) -> None:
    check(make)
