"""In-context learning with local models: likelihoods, orders and labels."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from fsf_detectors.hub import ModelFolder, load_processor, shut_up
from fsf_vlm import InContext, Pixels
from fsframework.interfaces import DataError, Known, OptionError
from fsframework.testing import parametrize_with_checks
from plugins.fsf_vlm.tests.tiny import KINDS, SIDE, tiny, tiny_path

NAMES = ["red", "light blue", "blue"]
TEXT = "One of: {labels}"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    tiny("llava")
    yield
    torch.set_num_threads(before)


def built(folder: Path, **options: Any) -> InContext:
    method = InContext(model=str(folder), **{"instruction": TEXT, **options})
    method.build((3, SIDE, SIDE), 0, Pixels(size=SIDE))
    return method


def episode(way: int = 3, shot: int = 2, n: int = 3) -> tuple[Tensor, Tensor]:
    """Return images of whole numbers of 255ths, as those of data sets are."""
    generator = torch.Generator().manual_seed(way)
    drawn = torch.randint(256, (1, way * shot + n, 3, SIDE, SIDE), generator=generator) / 255
    return drawn[:, : way * shot].unflatten(1, (way, shot)), drawn[:, way * shot :]


def scored(method: InContext, support: Tensor, query: Tensor, names: list[str]) -> Tensor:
    known = Known(names=method.embed_names(names)[None])
    return method.scores_with(support, query, known)


@pytest.fixture
def talks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """List the conversations that are rendered, also during the test."""
    from transformers import ProcessorMixin

    seen: list[Any] = []
    real = ProcessorMixin.apply_chat_template

    def noting(processor: Any, talk: Any, *args: Any, **options: Any) -> Any:
        seen.append(talk)
        return real(processor, talk, *args, **options)

    monkeypatch.setattr(ProcessorMixin, "apply_chat_template", noting)
    return seen


def shown(talks: list[Any]) -> tuple[str, list[str]]:
    """Return the instruction of the longest conversation, and the labels of its images."""
    talk = max(talks, key=len)
    labels = [turn["content"][0]["text"] for turn in talk if turn["role"] == "assistant"]
    return talk[0]["content"][0]["text"], labels


def plain(folder: Path, images: list[Tensor], labels: list[str], text: str) -> Tensor:
    """Return log-likelihoods of ``NAMES`` by a forward pass each, and their numbers of tokens.

    The template of the tiny models writes a label directly behind the start of the answer.
    """
    from transformers import AutoModelForImageTextToText

    with shut_up():
        model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = load_processor(ModelFolder.find(str(folder), None, offline=True))
    talk = []
    for i in range(len(images)):
        first = [{"type": "text", "text": text}] if i == 0 else []
        talk.append({"role": "user", "content": [*first, {"type": "image"}]})
        if i < len(labels):
            talk.append({"role": "assistant", "content": [{"type": "text", "text": labels[i]}]})
    prompt = processor.apply_chat_template(talk, add_generation_prompt=True)
    pictures = [[Image.fromarray((255 * i).byte().permute(1, 2, 0).numpy()) for i in images]]
    found = []
    for name in NAMES:
        one, whole = (
            processor(text=[prompt + tail], images=pictures, return_tensors="pt")
            for tail in ("", name)
        )
        with torch.no_grad(), shut_up():
            logits = model(**whole).logits[0].log_softmax(-1)
        ids = whole["input_ids"][0]
        tokens = range(one["input_ids"].shape[1], len(ids))
        found.append([sum(logits[i - 1, ids[i]].item() for i in tokens), len(tokens)])
    return torch.tensor(found)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("gemma3", "idefics3", "lfm2-vl")))
        for kind in KINDS
    ],
)
def test_scores_are_the_likelihoods_of_a_plain_form(kind: str, talks: list[Any]) -> None:
    folder = tiny(kind)
    support, query = episode(shot=1, n=3)
    found = scored(built(folder, normalise="none", batch=3), support, query, NAMES)
    text, labels = shown(talks)
    assert sorted(labels) == sorted(text.removeprefix("One of: ").split(", ")) == sorted(NAMES)
    images = [support[0, NAMES.index(label), 0] for label in labels]
    expected = plain(folder, [*images, query[0, 1]], labels, text)
    assert torch.allclose(found[0, 1], expected[:, 0], atol=1e-4)
    assert max(expected[:, 1]) > 1, "labels have several tokens"
    per_token = scored(built(folder), support, query, NAMES)
    assert torch.allclose(per_token[0, 1], expected[:, 0] / expected[:, 1], atol=1e-4)
    one_by_one = scored(built(folder, shared=False), support, query, NAMES)
    assert torch.allclose(per_token, one_by_one, atol=1e-4)


def test_the_support_and_each_image_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import LlavaModel

    encoded: list[int] = []
    real = LlavaModel.get_image_features

    def counting(model: Any, pixel_values: Tensor, **options: Any) -> Any:
        encoded.append(len(pixel_values))
        return real(model, pixel_values, **options)

    monkeypatch.setattr(LlavaModel, "get_image_features", counting)
    method = built(tiny("llava"), labels="letters")
    support, query = episode(n=5)
    method.scores(support, query[:, :1])
    encoded.clear()
    method.scores(support, query)
    assert sum(encoded) == 4, "only the queries that are new"
    before = method.usage
    method.scores(support, query)
    both = method.usage["prompt_tokens"] - before["prompt_tokens"]
    method.scores(support, query[:, :1])
    one = method.usage["prompt_tokens"] - before["prompt_tokens"] - both
    per_query = (both - one) / 4
    assert one - per_query > 5 * per_query, "the support costs the same for one query and for five"
    assert method.usage["requests"] == before["requests"] + 6


@pytest.mark.parametrize("labels", ["names", "letters", "permuted"])
def test_a_prompt_does_not_depend_on_the_order_of_ways_and_shots(labels: Any) -> None:
    method = built(tiny("llava"), labels=labels)
    support, query = episode(way=4, shot=3)
    names = ["red", "light blue", "blue", "red red"]
    found = scored(method, support, query, names)
    order = [2, 0, 3, 1]
    moved = scored(method, support[:, order].flip(2), query, [names[i] for i in order])
    assert torch.allclose(moved, found[..., order], atol=1e-4)
    assert not torch.allclose(
        scored(built(tiny("llava"), labels=labels, seed=1), support, query, names), found
    )


def test_permuted_labels_are_those_of_other_ways_and_scored_as_shown(talks: list[Any]) -> None:
    folder = tiny("llava")
    support, query = episode(shot=1)
    found = scored(built(folder, labels="permuted", normalise="none"), support, query, NAMES)
    text, labels = shown(talks)
    orders = []
    for step in (1, 2):  # of the two permutations of three ways that leave none where it is
        given = [NAMES[(way + step) % 3] for way in range(3)]
        images = [support[0, given.index(label), 0] for label in labels]
        expected = plain(folder, [*images, query[0, 0]], labels, text)[:, 0]
        orders.append(expected[[NAMES.index(one) for one in given]])
    assert any(torch.allclose(found[0, 0], one, atol=1e-4) for one in orders)


def test_letters_need_no_names(talks: list[Any]) -> None:
    method = built(tiny("llava"), labels="letters")
    assert not method.needs_class_names
    assert built(tiny("llava")).needs_class_names
    method.scores(*episode())
    text, labels = shown(talks)
    assert text == "One of: A, B, C"
    assert sorted(labels) == ["A", "A", "B", "B", "C", "C"]
    with pytest.raises(OptionError, match="at most 26 ways, not 27"):
        method.scores(*episode(way=27, shot=1))


def test_a_model_that_cannot_continue_reads_everything_for_each_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import LlavaForConditionalGeneration

    support, query = episode()
    expected = built(tiny("llava"), labels="letters").scores(support, query)
    real = LlavaForConditionalGeneration.forward

    def forgetful(model: Any, *args: Any, past_key_values: Any = None, **options: Any) -> Any:
        return real(model, *args, **options)

    monkeypatch.setattr(LlavaForConditionalGeneration, "forward", forgetful)
    method = built(tiny("llava"), labels="letters")
    with pytest.warns(UserWarning, match="a llava model cannot continue"):
        found = method.scores(support, query)
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": " "}, "model must be the name"),
        ({"labels": "words"}, "labels must be one of names, letters, permuted"),
        ({"normalise": "bytes"}, "normalise must be one of tokens, none"),
        ({"instruction": " "}, "instruction must say"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"dtype": "int8"}, "dtype must be one of auto"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        InContext(**{"model": "some/model", **options})


def test_offline_no_model_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[bool] = []

    def note(name: str, *, local_files_only: bool, **_: Any) -> Any:
        asked.append(local_files_only)
        raise OSError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", note)
    for offline in (True, False):
        backbone = Pixels(size=SIDE)
        backbone.load_pretrained(offline=offline)
        with pytest.raises(DataError, match="cannot be downloaded"):
            InContext(model="some/model").build((3, SIDE, SIDE), 0, backbone)
    assert asked == [True, False]


def test_models_that_cannot_be_asked(tmp_path: Path) -> None:
    from transformers import BertConfig

    BertConfig().save_pretrained(tmp_path / "bert")
    with pytest.raises(DataError, match="must produce text from images, which a bert model"):
        built(tmp_path / "bert")
    mute = Path(shutil.copytree(tiny("llava"), tmp_path / "mute"))
    for file in mute.glob("chat_template*"):
        file.unlink()
    with pytest.raises(DataError, match="must have a chat template"):
        built(mute)
    with pytest.raises(DataError, match="no such folder"):
        built(tmp_path / "none")


def letters() -> InContext:
    path = tiny_path("llava")
    return InContext(model=str(path), labels="letters", instruction=TEXT, batch=128)


def permuted() -> InContext:
    path = tiny_path("llava")
    return InContext(model=str(path), labels="permuted", instruction=TEXT, batch=128)


@pytest.mark.slow
@parametrize_with_checks(
    [letters, permuted], {InContext: {"check_solves_toy_task": "random weights"}}
)
def test_conformance_of_the_method(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.slow
@parametrize_with_checks([Pixels])
def test_conformance_of_the_backbone(make: Any, check: Any) -> None:
    check(make)
