import json
import pickle
import traceback
from pathlib import Path

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


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        (None, "pip install fsf-reports"),
        ("file:///wheels/fsframework-0.1.0-py3-none-any.whl", "--find-links /wheels fsf-reports"),
        ("https://example.org/fsframework.git", "came from, https://example.org/fsframework.git"),
        ("file://{checkout}", "pip install -e {checkout}/plugins/fsf_reports"),
    ],
)
def test_packages_are_installed_from_where_the_core_was(
    origin: str | None, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Path(errors.__file__).parents[1]

    class Installed:
        def read_text(self, _: str) -> str | None:
            return origin and json.dumps({"url": origin.format(checkout=checkout)})

    monkeypatch.chdir(checkout)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed())
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site/fsframework/errors.py"))
    assert hint.format(checkout=checkout) in errors.install_hint("fsf-reports")
    assert errors.install_hint("pandas") == "pip install pandas"


def test_in_a_checkout_packages_are_its_folders() -> None:
    root = Path(errors.__file__).parents[1]
    hint = errors.install_hint("fsf-reports")
    assert hint.startswith(f"pip install -e {root}/plugins/fsf_reports -e ")
    assert f"{root}/plugins/fsf_statistics" in hint, "which it depends on"
    assert f"{root}/plugins/fsf_timm[imagenet]" in errors.install_hint("fsf-timm[imagenet]")
    assert str(root) in errors.install_hint("fsframework[all]")
