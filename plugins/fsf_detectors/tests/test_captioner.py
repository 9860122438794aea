from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from fsf_detectors.captioner import Blip, ImageToText, VitGpt2
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks, toy_images
from tests.tiny_models import EveryWord, scenes, tiny_model, tiny_path

Copy = Callable[[str], Path]


@pytest.fixture(scope="module", autouse=True)
def _models(one_thread: None) -> None:
    for kind in ("vit-gpt2", "blip", "git", "llava"):
        tiny_model(kind)


@pytest.fixture(scope="module")
def seen() -> tuple[list[np.ndarray], list[str]]:
    return scenes(24, seed=1)


def _vit_gpt2() -> ImageToText:
    return VitGpt2(model=str(tiny_path("vit-gpt2")), selector=EveryWord())


def _blip() -> ImageToText:
    return Blip(model=str(tiny_path("blip")), selector=EveryWord())


def _git() -> ImageToText:
    return ImageToText(model=str(tiny_path("git")), selector=EveryWord())


@parametrize_with_checks([_vit_gpt2, _blip, _git])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def captions(cls: type[ImageToText], kind: str, images: Sequence[Any], **options: Any) -> list[str]:
    detector = cls(model=str(tiny_path(kind)), selector=EveryWord(), **options)
    detector.prepare(offline=True)
    return detector.describe(images)


def reference(kind: str, images: Sequence[np.ndarray], **settings: Any) -> list[str]:
    """Caption as shown in the documentation of Transformers."""
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

    folder = tiny_path(kind)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    shown = [Image.fromarray(image) for image in images]
    pixels = processor(shown, return_tensors="pt").pixel_values
    tokens = model.generate(pixel_values=pixels, **settings)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]


class TestCaptions:
    def test_follow_the_published_settings(self, seen: Any) -> None:
        images, truth = seen
        found = captions(VitGpt2, "vit-gpt2", images)
        assert found == reference("vit-gpt2", images, max_length=16, num_beams=4, do_sample=False)
        assert sum(a == b for a, b in zip(found, truth, strict=True)) >= 22

    @pytest.mark.parametrize(("beams", "tokens"), [(1, 6), (3, 9)])
    def test_are_those_of_the_beam_search_asked_for(
        self, seen: Any, beams: int, tokens: int
    ) -> None:
        found = captions(Blip, "blip", seen[0], num_beams=beams, max_tokens=tokens)
        assert found == reference("blip", seen[0], num_beams=beams, max_new_tokens=tokens - 1)

    def test_are_the_same_alone_and_at_any_size(self) -> None:
        images = [*toy_images(1, 48, 48), *toy_images(1, 33, 70), *toy_images(1, 7, 300)]
        for cls, kind in ((VitGpt2, "vit-gpt2"), (Blip, "blip"), (ImageToText, "git")):
            together = captions(cls, kind, images)
            detector = cls(model=str(tiny_path(kind)), selector=EveryWord())
            assert [detector.describe([image])[0] for image in images] == together
            assert detector.describe(images[::-1]) == together[::-1]

    def test_refuse_what_is_no_image(self) -> None:
        with pytest.raises(DataError, match=r"uint8 \(height, width, 3\), not float64 \(4, 4, 3\)"):
            captions(Blip, "blip", [np.zeros((4, 4, 3))])


class TestPrompt:
    def test_goes_on_from_a_prompt(self, seen: Any) -> None:
        images, truth = seen
        found = captions(ImageToText, "vit-gpt2", images, prompt="a red ball on")
        assert found == [f"the {text.split()[-1]}" for text in truth]

    def test_blip_begins_with_it_and_leaves_it_out(self, seen: Any) -> None:
        from transformers import AutoProcessor, BlipForConditionalGeneration

        folder, prompt = tiny_path("blip"), "a red ball"
        processor = AutoProcessor.from_pretrained(folder)
        model = BlipForConditionalGeneration.from_pretrained(folder)
        shown = [Image.fromarray(image) for image in seen[0]]
        inputs = processor(images=shown, text=[prompt] * len(shown), return_tensors="pt")
        tokens = model.generate(**inputs, num_beams=3, max_new_tokens=9)
        texts = processor.batch_decode(tokens, skip_special_tokens=True)
        assert all(text.startswith(prompt) for text in texts)
        expected = [text.removeprefix(prompt).strip() for text in texts]
        assert captions(Blip, "blip", seen[0], prompt=prompt, max_tokens=10) == expected

    def test_changes_what_git_says_and_is_left_out(self, seen: Any) -> None:
        found = captions(ImageToText, "git", seen[0], prompt="a red ball", max_tokens=6)
        assert found != captions(ImageToText, "git", seen[0], max_tokens=6)
        assert not any(text.startswith("a red ball") for text in found)
        assert all(found)

    def test_asks_a_model_that_answers(self, seen: Any) -> None:
        from transformers import LlavaForConditionalGeneration, LlavaProcessor

        folder, images = tiny_path("llava"), seen[0][:5]
        found = captions(ImageToText, "llava", images, prompt="What is it?", num_beams=2)
        processor = LlavaProcessor.from_pretrained(folder)
        model = LlavaForConditionalGeneration.from_pretrained(folder)
        for caption, image in zip(found, images, strict=True):
            inputs = processor(
                images=Image.fromarray(image),
                text="USER: <image> What is it? ASSISTANT:",
                return_tensors="pt",
            )
            tokens = model.generate(**inputs, num_beams=2, max_new_tokens=15, do_sample=False)
            said = tokens[0, inputs["input_ids"].shape[1] :]
            text = processor.tokenizer.decode(said, skip_special_tokens=True)
            assert caption == " ".join(text.split())

    def test_is_demanded_by_a_model_that_answers(self) -> None:
        with pytest.raises(OptionError, match="needs the option prompt"):
            captions(ImageToText, "llava", [])


class TestGenerationSettings:
    def test_of_the_folder_do_not_count(self, model_copy: Copy, seen: Any) -> None:
        folder = model_copy("blip")
        file = folder / "generation_config.json"
        theirs = {"do_sample": True, "temperature": 9.0, "num_beams": 2, "max_length": 5}
        theirs |= {"repetition_penalty": 3.0, "min_length": 4, "suppress_tokens": [1, 2, 3]}
        file.write_text(json.dumps({**json.loads(file.read_text()), **theirs}))
        detector = Blip(model=str(folder), selector=EveryWord())
        assert detector.describe(seen[0]) == captions(Blip, "blip", seen[0])

    def test_of_an_old_configuration_do_not_count(self, model_copy: Copy, seen: Any) -> None:
        folder = model_copy("blip")
        (folder / "generation_config.json").unlink()
        file = folder / "config.json"
        config = json.loads(file.read_text())
        theirs = {"do_sample": True, "num_beams": 1, "max_length": 4, "top_k": 5}
        config["text_config"] |= theirs
        file.write_text(json.dumps({**config, **theirs}))
        detector = Blip(model=str(folder), selector=EveryWord())
        assert detector.describe(seen[0]) == captions(Blip, "blip", seen[0])

    def test_stand_in_the_provenance(self) -> None:
        detector = VitGpt2(model=str(tiny_path("vit-gpt2")), selector=EveryWord(), num_beams=2)
        assert json.loads(detector.provenance()["generation"]) == {
            "do_sample": False,
            "early_stopping": False,
            "length_penalty": 1.0,
            "max_new_tokens": 15,
            "no_repeat_ngram_size": 0,
            "num_beams": 2,
            "repetition_penalty": 1.0,
        }


class TestNumberFormat:
    def test_half_precision_runs(self, seen: Any) -> None:
        options = {"model": str(tiny_path("vit-gpt2")), "selector": EveryWord()}
        detector = VitGpt2(**options, dtype="bfloat16")
        found = detector.describe(seen[0])
        assert sum(a == b for a, b in zip(found, seen[1], strict=True)) >= 20
        assert detector.provenance()["dtype"] == "bfloat16"

    def test_auto_is_half_on_a_gpu(self) -> None:
        from fsf_detectors.hub import resolve_dtype

        assert resolve_dtype("auto", "cuda:0") == torch.float16


def test_a_batch_that_does_not_fit_is_halved(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import VisionEncoderDecoderModel

    expected = captions(VitGpt2, "vit-gpt2", seen[0])
    sizes: list[int] = []
    fits = 5
    generate = VisionEncoderDecoderModel.generate

    def short_of_memory(self: Any, pixel_values: Any, **rest: Any) -> Any:
        sizes.append(len(pixel_values))
        if len(pixel_values) > fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return generate(self, pixel_values=pixel_values, **rest)

    monkeypatch.setattr(VisionEncoderDecoderModel, "generate", short_of_memory)
    detector = VitGpt2(model=str(tiny_path("vit-gpt2")), selector=EveryWord())
    assert detector.describe(seen[0]) == expected
    assert sizes == [24, 12, 6, 3, 3, 3, 3, 3, 3, 3, 3]
    detector.describe(seen[0])
    assert sizes[11:] == [3] * 8
    fits = 0
    with pytest.raises(DataError, match="too small for one image"):
        detector.describe(seen[0])


class TestProvenance:
    def test_tells_model_digests_and_selector(self) -> None:
        folder = tiny_path("vit-gpt2")
        found = VitGpt2(model=str(folder), selector=EveryWord()).provenance()
        weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        assert found["weights"] == f"sha256:{weights}"
        assert found["model"] == str(folder)
        assert found["selector.kind"] == "every word"
        assert found["transformers"].split(".")[0].isdecimal()
        assert "revision" not in found

    @pytest.mark.parametrize(
        ("file", "name"),
        [("model.safetensors", "weights"), ("tokenizer_config.json", "files")],
    )
    def test_a_changed_file_changes_its_digest(
        self, model_copy: Copy, file: str, name: str
    ) -> None:
        folder = model_copy("vit-gpt2")
        before = VitGpt2(model=str(folder), selector=EveryWord()).provenance()
        if file == "model.safetensors":
            weights = load_file(folder / file)
            weights["encoder.layernorm.weight"] *= 2
            save_file(weights, folder / file)
        else:
            (folder / file).write_text((folder / file).read_text() + "\n")
        after = VitGpt2(model=str(folder), selector=EveryWord()).provenance()
        assert {k for k in before if before[k] != after[k]} == {name}

    def test_shards_have_one_digest(self, model_copy: Copy, seen: Any) -> None:
        folder = model_copy("vit-gpt2")
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        names = sorted(weights)
        parts = {"a.safetensors": names[:20], "b.safetensors": names[20:]}
        for file, keys in parts.items():
            save_file({k: weights[k] for k in keys}, folder / file, {"format": "pt"})
        where = {key: file for file, keys in parts.items() for key in keys}
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
        detector = VitGpt2(model=str(folder), selector=EveryWord())
        assert detector.describe(seen[0]) == captions(VitGpt2, "vit-gpt2", seen[0])
        digests = [hashlib.sha256((folder / f).read_bytes()).hexdigest() for f in parts]
        both = hashlib.sha256("".join(f"{d}\n" for d in digests).encode()).hexdigest()
        assert detector.provenance()["weights"] == f"sha256:{both}"
        (folder / "b.safetensors").unlink()
        with pytest.raises(DataError, match=r"the file 'b\.safetensors', named in .*, is missing"):
            VitGpt2(model=str(folder), selector=EveryWord()).prepare()


class TestOffline:
    def test_a_cached_model_needs_no_network_and_records_its_commit(
        self, hub_cache: Path, model_copy: Copy, no_network: list[Any], seen: Any
    ) -> None:
        commit = "0123456789abcdef0123456789abcdef01234567"
        home = hub_cache / "models--someone--captions"
        (home / "refs").mkdir(parents=True)
        (home / "refs" / "main").write_text(commit)
        (home / "snapshots").mkdir()
        model_copy("vit-gpt2").rename(home / "snapshots" / commit)
        for revision in (None, "main", commit):
            detector = VitGpt2(model="someone/captions", revision=revision, selector=EveryWord())
            detector.prepare(offline=True)
            assert detector.provenance()["revision"] == commit
            assert detector.provenance()["model"] == "someone/captions"
            assert detector.describe(seen[0][:2]) == captions(VitGpt2, "vit-gpt2", seen[0][:2])
        assert no_network == []

    def test_a_missing_model_is_an_error_with_a_remedy(
        self, hub_cache: Path, no_network: list[Any]
    ) -> None:
        detector = VitGpt2(revision="v2", selector=EveryWord())
        command = "hf download nlpconnect/vit-gpt2-image-captioning --revision v2"
        with pytest.raises(DataError, match=f"not on this machine.*{command}"):
            detector.prepare(offline=True)
        assert no_network == []

    def test_without_a_network_an_online_call_says_so(
        self, hub_cache: Path, no_network: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The hub waits 23 seconds in all before it gives up.
        monkeypatch.setattr(time, "sleep", lambda _seconds: None)
        with pytest.raises(DataError, match=r"Salesforce/blip.*: not on this.*cannot be reached"):
            Blip(selector=EveryWord()).prepare()
        assert no_network


class TestHub:
    def test_pickled_weights_are_downloaded_only_if_there_are_no_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import huggingface_hub

        asked: list[tuple[str, str, bool]] = []
        published = tmp_path / "published"
        shutil.copytree(tiny_path("vit-gpt2"), published)
        weights = load_file(published / "model.safetensors")
        torch.save(weights, published / "pytorch_model.bin")
        (published / "tf_model.h5").touch()

        def download(name: str, **options: Any) -> str:
            asked.append((name, options["revision"], options["local_files_only"]))
            folder = tmp_path / options["revision"]
            folder.mkdir(exist_ok=True)
            for file in published.iterdir():
                if any(fnmatch.fnmatch(file.name, one) for one in options["allow_patterns"]):
                    shutil.copy(file, folder)
            return str(folder)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        VitGpt2(model="some/model", revision="v1", selector=EveryWord()).prepare()
        assert asked == [("some/model", "v1", False)]
        (published / "model.safetensors").unlink()
        VitGpt2(model="some/model", revision="v2", selector=EveryWord()).prepare(offline=True)
        assert asked[1:] == [("some/model", "v2", True)] * 2
        downloaded = {f.name for v in ("v1", "v2") for f in (tmp_path / v).glob("*model.*")}
        assert downloaded == {"model.safetensors", "pytorch_model.bin"}
        assert not (tmp_path / "v1" / "pytorch_model.bin").exists()

    def test_our_own_models_are_taken_at_a_commit_and_others_at_their_head(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import huggingface_hub

        from fsf_detectors.clip_words import ClipWords

        asked: list[str | None] = []

        def note(_: str, **options: Any) -> str:
            asked.append(options["revision"])
            raise OSError

        monkeypatch.setattr(huggingface_hub, "snapshot_download", note)
        other, main = ImageToText(model="some/model"), VitGpt2(revision="main")
        for detector in (other, main, VitGpt2(), Blip(), ClipWords()):
            with pytest.raises(DataError, match="cannot be downloaded"):
                detector.prepare()
        assert asked[:2] == [None, "main"]
        assert all(re.fullmatch("[0-9a-f]{40}", str(commit)) for commit in asked[2:])

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            ("GatedRepoError", "the hub requires you to accept its terms"),
            ("RepositoryNotFoundError", "neither a folder nor a model on the hub"),
            ("RevisionNotFoundError", "the hub has no revision 'v9' of it"),
            ("LocalEntryNotFoundError", "not on this machine, and the hub cannot be reached"),
            ("HfHubHTTPError", r"at revision v9: cannot be downloaded \(HfHubHTTPError"),
        ],
    )
    def test_refusals_of_the_hub_are_reported(
        self, monkeypatch: pytest.MonkeyPatch, error: str, message: str
    ) -> None:
        import huggingface_hub
        from huggingface_hub import errors

        kind = getattr(errors, error)

        def refuse(*_: Any, **__: Any) -> Any:
            raise kind.__new__(kind)  # its constructor needs a server's response

        monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
        with pytest.raises(DataError, match=rf"^model some/model.*{message}"):
            VitGpt2(model="some/model", revision="v9", selector=EveryWord()).prepare()


class TestModelsThatAreRefused:
    def refuse(
        self, folder: Path | str, message: str, cls: type[ImageToText] = ImageToText
    ) -> None:
        with pytest.raises(DataError, match=message) as caught:
            cls(model=str(folder), selector=EveryWord()).prepare(offline=True)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_nothing(self, tmp_path: Path, hub_cache: Path) -> None:
        self.refuse(tmp_path / "none", "no such folder")
        self.refuse("./models/none", "no such folder")
        self.refuse("not a name", "must be a folder or a name on the hub, OWNER/NAME")
        (tmp_path / "file").touch()
        self.refuse(tmp_path / "file", "must be a folder, not a file")
        (tmp_path / "empty").mkdir()
        self.refuse(tmp_path / "empty", "not a model of Transformers; the folder is empty")
        (tmp_path / "empty" / "notes.txt").touch()
        self.refuse(tmp_path / "empty", r"it has no config\.json")

    def test_a_model_of_another_task(self, tmp_path: Path) -> None:
        from transformers import BertConfig

        BertConfig(architectures=["BertForMaskedLM"]).save_pretrained(tmp_path)
        self.refuse(tmp_path, "text from images, which BertForMaskedLM does not")

    def test_a_captioner_of_another_kind(self) -> None:
        self.refuse(
            tiny_path("blip"), "must contain a vision-encoder-decoder model, .* captioner", VitGpt2
        )
        self.refuse(tiny_path("git"), "must contain a blip model, not GitForCausalLM", Blip)

    @pytest.mark.parametrize(
        ("pattern", "named"),
        [
            ("tokenizer.json", r"no tokenizer \(tokenizer\.json or"),
            ("*processor_config.json", r"no image processor \(preprocessor_config\.json or"),
            ("model.safetensors", "no weights"),
        ],
    )
    def test_without_a_file(self, model_copy: Copy, pattern: str, named: str) -> None:
        folder = model_copy("vit-gpt2")
        for file in folder.glob(pattern):
            file.unlink()
        self.refuse(folder, f"contains {named}")

    @pytest.mark.parametrize(
        ("key", "found", "named"),
        [
            ("decoder.transformer.wpe.weight", torch.zeros(3, 3), "damaged or belong to another"),
            ("decoder.transformer.h.1.mlp.c_fc.weight", None, r"1 of the \d+ .* would be random"),
        ],
    )
    def test_with_the_weights_of_another_model(
        self, model_copy: Copy, key: str, found: Any, named: str
    ) -> None:
        folder = model_copy("vit-gpt2")
        weights = {**load_file(folder / "model.safetensors"), key: found}
        weights = {k: w for k, w in weights.items() if w is not None}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        self.refuse(folder, named)

    @pytest.mark.parametrize(
        ("file", "named"),
        [
            ("model.safetensors", "its weights cannot be loaded; they are damaged"),
            ("config.json", r"its config\.json names no model that Transformers knows"),
        ],
    )
    def test_with_a_damaged_file(self, model_copy: Copy, file: str, named: str) -> None:
        folder = model_copy("vit-gpt2")
        raw = (folder / file).read_bytes()
        (folder / file).write_bytes(raw[: len(raw) // 2])
        self.refuse(folder, named)

    def test_with_code_of_its_own(self, model_copy: Copy, tmp_path: Path) -> None:
        folder, trace = model_copy("vit-gpt2"), tmp_path / "was-run"
        own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
        (folder / "config.json").write_text(json.dumps(own))
        (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Config: ...\n")
        self.refuse(folder, "code supplied with a model is never run")
        assert not trace.exists()

    def test_with_weights_that_would_run_code(self, model_copy: Copy, tmp_path: Path) -> None:
        folder, trace = model_copy("vit-gpt2"), tmp_path / "was-run"
        (folder / "model.safetensors").unlink()

        class Trap:
            def __reduce__(self) -> Any:
                return open, (str(trace), "w")

        torch.save({"weights": Trap()}, folder / "pytorch_model.bin")
        self.refuse(folder, "its weights cannot be loaded")
        assert not trace.exists()

    def test_a_revision_of_a_folder(self) -> None:
        detector = Blip(model=str(tiny_path("blip")), revision="main", selector=EveryWord())
        with pytest.raises(OptionError, match="revision must not be set for the folder"):
            detector.prepare()


def test_files_as_they_were_published(model_copy: Copy, seen: Any) -> None:
    """Pickled weights without a pooler, an old image processor, no generation settings."""
    folder = model_copy("vit-gpt2")
    weights = load_file(folder / "model.safetensors")
    weights = {key: value for key, value in weights.items() if "pooler" not in key}
    weights["decoder.transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "generation_config.json").unlink()
    file = folder / "preprocessor_config.json"
    old = json.loads(file.read_text())
    del old["image_processor_type"]
    old |= {"feature_extractor_type": "ViTFeatureExtractor", "size": 32, "resample": 2}
    file.write_text(json.dumps(old))
    detector = VitGpt2(model=str(folder), selector=EveryWord())
    assert detector.describe(seen[0]) == captions(VitGpt2, "vit-gpt2", seen[0])


def test_a_folder_needs_no_network_and_nothing_is_printed(
    seen: Any, capfd: pytest.CaptureFixture[str], no_network: list[Any]
) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    for cls, kind in ((VitGpt2, "vit-gpt2"), (Blip, "blip"), (ImageToText, "git")):
        captions(cls, kind, seen[0][:4])
    assert no_network == []
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": " "}, "model must be"),
        ({"max_tokens": 1}, "max_tokens must be at least 2 .*, not 1"),
        ({"num_beams": 0}, "num_beams must be at least 1, not 0"),
        ({"dtype": "int8"}, "dtype must be one of auto, float32, float16, bfloat16, not 'int8'"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        VitGpt2(**options, selector=EveryWord())


def test_defaults_are_those_of_fewstab() -> None:
    from fsf_detectors.selection import SpacySelector

    detector = VitGpt2()
    assert detector.model == "nlpconnect/vit-gpt2-image-captioning"
    assert (detector.max_tokens, detector.num_beams) == (16, 4)
    assert Blip().model == "Salesforce/blip-image-captioning-large"
    for one in (detector, Blip(), ImageToText(model="a/b")):
        assert isinstance(one.selector, SpacySelector)


@pytest.mark.slow
def test_a_torchvision_for_another_pytorch_does_no_harm(tmp_path: Path) -> None:
    """Its meta kernels are registered for operators that its compiled part lacks."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "import torch\n"
        "library = torch.library.Library('torchvision', 'IMPL', 'Meta')\n"
        "for name in ('nms', 'qnms'):\n"
        "    library.impl(name, lambda dets, scores, threshold: dets)\n"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from fsf_detectors._torchvision import mend_torchvision\n"
        "try: import torchvision\n"
        "except RuntimeError: print('broken')\n"
        "mend_torchvision(); mend_torchvision()\n"
        "import torchvision; print('fine')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "broken\nfine\n", done.stderr
