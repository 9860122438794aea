import pytest

from fsframework import errors


def test_every_error_of_ours_is_an_fsf_error():
    classes = [getattr(errors, name) for name in errors.__all__ if name[0].isupper()]
    assert all(issubclass(cls, errors.FsfError) for cls in classes)


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
