from __future__ import annotations

import pytest

from fsf_detectors.tags import TagSelector
from fsframework.interfaces import OptionError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([TagSelector, lambda: TagSelector(most_words=1)])
def test_conformance(make: object, check: object) -> None:
    check(make)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dog, Grass,  red   ball.", {"dog", "grass", "red ball"}),
        ("- dog\n- tennis ball\n* grass", {"dog", "tennis ball", "grass"}),
        ("1. dog\n2) grass\n10: snow", {"dog", "grass", "snow"}),
        ('["dog", "grass"]', {"dog", "grass"}),
        ("**Tags:** dog; grass | snow", {"dog", "grass", "snow"}),
        ("Here are the tags that describe this image:\ndog, grass", {"dog", "grass"}),
        ("dog, I hope that this helps you!", {"dog"}),
        ("t-shirt, children's toy, 2 dogs, 42", {"t-shirt", "children's toy", "2 dogs"}),
        ("dog, DOG, dog.", {"dog"}),
        ("Hund, Ball, Stra\u00dfe, \u72ac\u3001\u8349", {"hund", "ball", "straße", "犬", "草"}),
        ("no cat, dog &amp; ball, none</s>", {"dog & ball"}),
        ("<|im_start|>assistant\ndog\ncat<|im_end|>", {"dog", "cat"}),
        ("", set()),
        ("... , - ,\n", set()),
    ],
)
def test_items_of_a_list_are_words(text: str, words: set[str]) -> None:
    assert TagSelector().select([text, ""]) == [words, frozenset()]


def test_long_items_are_no_tags() -> None:
    text = "big red tennis ball, red ball"
    assert TagSelector(most_words=4).select([text]) == [{"big red tennis ball", "red ball"}]
    assert TagSelector(most_words=1).select([text]) == [frozenset()]
    with pytest.raises(OptionError, match="most_words must be at least 1, got 0"):
        TagSelector(most_words=0)
