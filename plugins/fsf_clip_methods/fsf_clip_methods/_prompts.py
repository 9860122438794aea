"""Prompts: the texts that are read for the name of a class."""

from __future__ import annotations

from collections.abc import Sequence

from fsframework.interfaces import OptionError

__all__ = ["DEFAULT", "SETS", "plain", "templates_of", "texts_of"]

DEFAULT = "a photo of a {}."

_PHOTO = (DEFAULT,)

SETS: dict[str, tuple[str, ...]] = {
    "clip-imagenet-7": (
        "itap of a {}.",
        "a bad photo of the {}.",
        "a origami {}.",
        "a photo of the large {}.",
        "a {} in a video game.",
        "art of the {}.",
        "a photo of the small {}.",
    ),
    "aircraft": ("a photo of a {}, a type of aircraft.",),
    "caltech101": _PHOTO,
    "cifar": _PHOTO,
    "cub": ("a photo of a {}, a type of bird.",),
    "dtd": ("{} texture.",),
    "eurosat": ("a centered satellite photo of {}.",),
    "flowers": ("a photo of a {}, a type of flower.",),
    "food101": ("a photo of {}, a type of food.",),
    "pets": ("a photo of a {}, a type of pet.",),
    "stanford-cars": _PHOTO,
    "sun397": _PHOTO,
    "ucf101": ("a photo of a person doing {}.",),
}
"""Templates by name. ``clip-imagenet-7`` are the seven that Radford et al. selected for ImageNet in
their code; Tip-Adapter uses them. ``cub`` is their template for Birdsnap, the other data set of
birds, as CoOp has none. The others are those of the code of Zhou et al. 2022, "Learning to Prompt
for Vision-Language Models"; it has none for CIFAR, which gets the plain one."""


def templates_of(prompts: str) -> tuple[str, ...]:
    """Return the templates that an option names.

    >>> templates_of("dtd"), templates_of("a {}. | the {}.")
    (('{} texture.',), ('a {}.', 'the {}.'))

    Raises:
        OptionError: a template does not contain ``{}`` exactly once.
    """
    if prompts in SETS:
        return SETS[prompts]
    found = tuple(one.strip() for one in prompts.split("|"))
    for one in found:
        if one.count("{}") != 1:
            raise OptionError(
                "prompts must be templates separated by | that each contain {} once, or one of "
                f"{', '.join(SETS)}, got {one!r}"
            )
    return found


def texts_of(names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Return every template with every name, the templates of the first name first."""
    return [one.replace("{}", plain(name)) for name in names for one in templates]


def plain(name: str) -> str:
    """Return the name of a class as it stands in a sentence.

    >>> plain("Black_footed_Albatross")
    'Black footed Albatross'
    """
    return " ".join(name.replace("_", " ").split())
