import pickle
import traceback

import pytest

from fsframework import errors


def test_every_error_of_ours_is_an_fsf_error():
    classes = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
    assert all(issubclass(cls, (errors.FsfError, Warning)) for cls in classes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("protonets", " (did you mean 'protonet'?)"),
        ("renett", " (did you mean 'renet'?)"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_close_matches(name, expected):
    assert errors.close_matches(name, ["renet", "protonet"]) == expected


def test_close_matches_do_not_depend_on_the_order_of_a_set():
    known = ["alpha-a", "alpha-b", "alpha-c", "alpha-d"]
    assert errors.close_matches("alpha", known) == errors.close_matches("alpha", known[::-1])
    assert errors.close_matches("alpha", known).count(" or ") == 2


def test_a_picture_is_shown_below_the_sentence_and_is_no_part_of_it():
    error = errors.DataError("images: nothing is found", picture="images/\n└── CLASS/")
    for found in (error, pickle.loads(pickle.dumps(error))):
        assert str(found) == "images: nothing is found"
        assert found.picture == "images/\n└── CLASS/"
        shown = "".join(traceback.format_exception_only(found))
        assert shown.endswith("nothing is found\n\nimages/\n└── CLASS/\n")
    assert errors.FsfError("short").picture == ""
