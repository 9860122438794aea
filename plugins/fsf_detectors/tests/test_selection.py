"""Words of captions, with the lexicon and with spaCy pipelines saved to and loaded from disk."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsf_detectors.selection import SpacySelector
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import Check, Make, parametrize_with_checks

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_shared = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the reference data is not at {SHARED}"),
]
TREEBANK = SHARED / "pos" / "en_ewt-ud-dev.conllu"
CAPTIONS = SHARED / "captions" / "flickr8k.token.txt.gz"

Lexicon = partial(SpacySelector, pipeline="lexicon")


one = cache(Lexicon)  # building the pipeline takes a second


def words(caption: str, **options: Any) -> set[str]:
    [found] = one(**options).select([caption])
    return set(found)


@parametrize_with_checks(
    [
        SpacySelector,
        partial(Lexicon, compounds="joined", adjectives="noun-chunks"),
    ]
)
def test_conformance(make: Make, check: Check) -> None:
    check(make)


# Words


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a black dog running through tall grass", "black dog tall grass"),
        ("Two men and three women sit on wooden benches .", "man woman wooden bench"),
        ("A brown dog jumps over a fallen tree.", "brown dog tree"),
        ("two dogs play in the snow", "dog snow"),
        ("A bird on top of a cliff next to a group of dogs.", "bird cliff dog"),
        ("In the middle of a lot of sheep a man, such as him", "man sheep"),
        ("the top of a cliff at the front, next week a couple", "cliff couple front next top week"),
        ("a bus lot of a shop", "bus lot shop"),
        ("a man rides a wave on a surfboard", "man wave surfboard"),
        ("a big red stop sign and boys in red play soccer", "big red stop sign boy soccer"),
        ("he runs past a bench in the past", "bench past"),
        ("A girl sits and watches the waves .", "girl wave"),
        ("The spotted dog jumps a fence", "dog fence"),
        ("one dog rests while another jumps", "dog"),
        ("A man in blue rides a horse", "man blue horse"),
        ("a dog with its mouth open running on the sand", "dog mouth open sand"),
        ("a girl jumps her jump rope", "girl jump rope"),
        ("A boy skateboards down the street", "boy street"),
        ("A dog jumps to catch a Frisbee .", "dog frisbee"),
        ("a bird next to water", "bird water"),
        ("he wants to water the plants", "plant"),
        ("The man's hat is red.", "man hat red"),
        ("It's right next to the large bus", "right large bus"),
        ("Skateboarder doing a trick", "skateboarder trick"),
        ("Barack Obama meets his wife Michelle in Paris", "wife"),
        ("an asian woman in a red and white dress", "asian woman red white dress"),
        ("a larger dog", "larger dog"),
    ],
)
def test_words_of_captions(caption: str, expected: str) -> None:
    assert words(caption) == set(expected.split())


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A DOG SITTING ON THE GRASS", "dog grass"),
        ("Dog On A Wooden Bench", "dog wooden bench"),
        ("Two Dogs on a Wooden Bench", "dog wooden bench"),
        ("Golden Gate at night", "golden night"),
        ("a DOG on the GRASS", "dog grass"),
        ("a woman and her assistant: both at a desk", "assistant woman desk"),
        ("no dog, cat, or bird on the sofa", "sofa"),
        ("a dog with no leash, grass, and a tree or a bush", "dog grass tree bush"),
        ("<think>The user wants a cat.</think>A dog on grass.", "dog grass"),
        ("**Subject:** a dog\n**Background:** grass", "dog grass"),
        ('```json\n{"objects": ["dog"], "background": "grass"}\n```', "dog grass"),
        ("dog;grass|tree", "dog grass tree"),
        ("a dog\u200b on the gra\u00adss\x00", "dog grass"),
        ("a dog &amp; a cat, it&#39;s a house &lt;br&gt; a tree", "dog cat house tree"),
        ("<|endoftext|>a dog on the beach[SEP]", "dog beach"),
        ("[CLS] a dog</s><pad> on grass.<eos>", "dog grass"),
        ("USER: <image> describe the photo. ASSISTANT: a dog on grass", "dog grass"),
        ("<|im_start|>assistant\na dog on grass<|im_end|>", "dog grass"),
        ("\u2581a\u2581dog near sun ##glasses", "dog sunglasses"),
        ("a street with no big dog or cat in the sun", "street sun"),
        ("a dog without a leash on the grass", "dog grass"),
        ("a man who isn't wearing a hat, the sky is not visible", "man sky"),
        ("a no parking sign not far from a tree", "parking sign tree"),
        ("not a dog but a cat", "cat"),
    ],
)
def test_captions_as_models_and_people_write_them(caption: str, expected: str) -> None:
    assert words(caption) == set(expected.split())


LEMMAS = (
    "dogs:dog men:man women:woman children:child people:people glasses:glass buses:bus "
    "leaves:leaf skis:ski jeans:jeans shoes:shoe wolves:wolf knives:knife feet:foot teeth:tooth "
    "gloves:glove waves:wave horses:horse roses:rose boxes:box quizzes:quiz benches:bench "
    "dresses:dress lenses:lens potatoes:potato puppies:puppy cookies:cookie movies:movie ties:tie "
    "monkeys:monkey scarves:scarf shelves:shelf snowmen:snowman mice:mouse geese:goose "
    "scissors:scissors sunglasses:sunglasses shorts:shorts matches:match watches:watch "
    "surfboards:surfboard sheep:sheep axes:axe wives:wife videos:video"
)


@pytest.mark.parametrize("pair", LEMMAS.split())
def test_lemmas_of_plurals(pair: str) -> None:
    plural, lemma = pair.split(":")
    assert words(f"two {plural} .") == {lemma}


@pytest.mark.parametrize(
    "noun", ["grass", "bus", "bass", "tennis", "glass", "dress", "lens", "news"]
)
def test_singulars_in_s_stay(noun: str) -> None:
    assert words(f"the {noun} .") == {noun}


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("", set()),
        (" \n\t ", set()),
        ("?! 42 ... 3.5 10% $20 1,000", set()),
        ("🐕 😀 :-) <3 ***", set()),
        ("www.example.com or me@example.com", set()),
        ("a 3d printer", {"3d", "printer"}),
        ("a t-shirt", {"shirt"}),  # spaCy splits it, and a letter is no word
        ("a cafe\N{COMBINING ACUTE ACCENT}", {"café"}),
        ("a dog \ud800 \udfff", {"dog"}),
        ("狗在草地上跑", set()),
        ("собака бежит", set()),
    ],
)
def test_tokens_that_are_not_words(caption: str, expected: set[str]) -> None:
    assert words(caption) == expected
    assert words(caption, compounds="joined") <= expected | {"t-shirt", "3d printer"}


def test_compounds_of_adjacent_nouns() -> None:
    caption = "two stop signs, a sports car and a man's t-shirt near tennis ball boys"
    joined = words(caption, compounds="joined")
    assert joined == {"stop sign", "sports car", "man", "t-shirt", "tennis ball boy"}
    apart = words(caption)
    assert apart == {"stop", "sign", "sport", "car", "man", "shirt", "tennis", "ball", "boy"}


@pytest.mark.parametrize(
    ("caption", "kept"),
    [
        ("The car is red.", ""),
        ("a red car is big", "red"),
        ("a big , black and white dog is happy", "big black white"),
        ("a very small running dog", "small"),
        ("black dogs and brown cats are wet", "black brown"),
        ("the man is happy running home", ""),
        ("his long - sleeved shirt", "long"),
    ],
)
def test_adjectives_in_noun_chunks(caption: str, kept: str) -> None:
    nouns = words(caption, adjectives="none")
    assert words(caption, adjectives="noun-chunks") - nouns == set(kept.split())
    assert words(caption, adjectives="all") - nouns >= set(kept.split())


# The lexicon pipeline as spaCy runs it


def saved(nlp: Any, folder: Path) -> str:
    nlp.to_disk(folder)
    return str(folder)


@pytest.fixture(scope="module")
def lexicon_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(Lexicon().nlp, tmp_path_factory.mktemp("pipelines") / "lexicon")


def test_lexicon_pipeline_is_a_spacy_pipeline() -> None:
    doc = Lexicon().nlp("Two black\n dogs run.")
    assert [(token.pos_, token.lemma_) for token in doc] == [
        ("NUM", "two"),
        ("ADJ", "black"),
        ("SPACE", "\n "),
        ("NOUN", "dog"),
        ("VERB", "run"),
        ("PUNCT", "."),
    ]


@pytest.fixture(scope="module")
def both(lexicon_folder: str) -> list[tuple[SpacySelector, SpacySelector]]:
    """Selectors that read only words, each with one that reads spaCy's documents."""
    variants = [{}, {"compounds": "joined", "adjectives": "noun-chunks"}]
    return [
        (Lexicon(**options), SpacySelector(pipeline=lexicon_folder, **options))
        for options in variants
    ]


PIECES = (
    "a the dogs jumps sign T-shirt man's can't :) ( : - , . a.m. U.S. 10km café \N{NO-BREAK SPACE} "
    "\n  \t rock'n'roll e.g. … — <3 o.O www.x.org A An 's ' \" Frisbee"
)
TEXTS = st.one_of(
    st.text(max_size=30), st.lists(st.sampled_from(PIECES.split(" ")), max_size=12).map(" ".join)
)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_words_give_the_same_as_documents(
    text: str, both: list[tuple[SpacySelector, SpacySelector]]
) -> None:
    for alone, documents in both:
        assert alone.select([text]) == documents.select([text])


def captions() -> list[str]:
    with gzip.open(CAPTIONS, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t")[1] for line in file]


class TestRealText:
    pytestmark = needs_shared

    def test_words_give_the_same_as_documents(
        self, both: list[tuple[SpacySelector, SpacySelector]]
    ) -> None:
        some = random.Random(0).sample(captions(), 1500)
        for alone, documents in both:
            assert alone.select(some) == documents.select(some)

    def test_f1_on_gold_tokens(self) -> None:
        """Token by token; NOUN without PROPN, as in the treebank."""
        from spacy.tokens import Doc

        nlp = Lexicon().nlp
        tally: Counter[tuple[str, bool, bool]] = Counter()
        lemmas: list[bool] = []
        for sentence in TREEBANK.read_text(encoding="utf-8").split("\n\n"):
            rows = [line.split("\t") for line in sentence.splitlines() if line[:1].isdigit()]
            rows = [row for row in rows if row[0].isdigit()]  # no ranges, no empty nodes
            if not rows:
                continue
            doc = nlp(Doc(nlp.vocab, words=[row[1] for row in rows]))
            for row, token in zip(rows, doc, strict=True):
                for pos in ("NOUN", "ADJ"):
                    tally[pos, row[3] == pos, token.pos_ == pos] += 1
                if row[3] == token.pos_ == "NOUN":
                    lemmas.append(row[2].lower() == token.lemma_)
        for pos, floor in (("NOUN", 0.87), ("ADJ", 0.865)):
            hits, misses = tally[pos, True, True], tally[pos, True, False]
            f1 = 2 * hits / (2 * hits + misses + tally[pos, False, True])
            assert f1 > floor, pos
        assert sum(tally.values()) == 2 * 25_147
        assert sum(lemmas) / len(lemmas) > 0.97

    def test_words_of_flickr8k(self) -> None:
        found = Lexicon().select(captions()[::4])
        assert len(found) == 10_115
        count = Counter(word for words in found for word in words)
        assert {word for word, _ in count.most_common(7)} == {
            *("dog", "man", "boy", "girl", "woman", "white", "black")
        }
        # Verbs that the lexicon has as a noun too, or only as a noun.
        # In 1,300 captions something is in front of something, in 1,160 there is a group of people.
        assert 0 < count["front"] < 40 > count["group"] > 0
        for verb in ("run", "running", "sitting", "jumping", "climb", "is"):
            assert count[verb] < 15, verb


# Pipelines of others


@pytest.fixture(scope="module")
def tables_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pipeline with parts of speech and lemmas from tables but without arcs."""
    import spacy
    from spacy.lookups import Lookups

    nlp = spacy.blank("en", meta={"name": "tables", "version": "1.2.3"})
    ruler = nlp.add_pipe("attribute_ruler")
    for pos, group in {
        "DET": "a the",
        "ADJ": "schwarz red",
        "NOUN": "hund hunde stop signs dog",
        "PROPN": "rex",
        "VERB": "runs",
        "AUX": "is",
    }.items():
        ruler.add([[{"LOWER": {"IN": group.split()}}]], {"POS": pos})
    lookups = Lookups()
    lookups.add_table("lemma_lookup", {"Hunde": "Hund", "signs": "sign"})
    nlp.add_pipe("lemmatizer", config={"mode": "lookup"}).initialize(lookups=lookups)
    return saved(nlp, tmp_path_factory.mktemp("pipelines") / "tables")


def test_a_saved_pipeline_decides(tables_folder: str) -> None:
    captions = ["Rex runs the Hunde schwarz", "a red stop signs", "the dog is red", ""]
    selector = SpacySelector(pipeline=tables_folder)
    assert selector.select(captions) == [
        {"hund", "schwarz"},
        {"red", "stop", "sign"},
        {"dog", "red"},
        set(),
    ]
    joined = SpacySelector(pipeline=tables_folder, compounds="joined", adjectives="noun-chunks")
    assert joined.select(captions) == [{"hund"}, {"red", "stop sign"}, {"dog"}, set()]


PARSED = {
    # words: their parts of speech, heads and arcs
    "a small dog chases ice cream trucks": (
        ["DET", "ADJ", "NOUN", "VERB", "NOUN", "NOUN", "NOUN"],
        [2, 2, 3, 3, 5, 6, 3],
        ["det", "amod", "nsubj", "ROOT", "compound", "compound", "dobj"],
    ),
    "the red signs give drivers cold food": (
        ["DET", "ADJ", "NOUN", "VERB", "NOUN", "ADJ", "NOUN"],
        [2, 2, 3, 3, 3, 6, 3],
        ["det", "amod", "nsubj", "ROOT", "dative", "amod", "dobj"],
    ),
    "the dogs make men happy": (
        ["DET", "NOUN", "VERB", "NOUN", "ADJ"],
        [1, 2, 2, 4, 2],
        ["det", "nsubj", "ROOT", "nsubj", "ccomp"],
    ),
    "the signs give stop orders": (
        ["DET", "NOUN", "VERB", "NOUN", "NOUN"],
        [1, 2, 2, 2, 2],
        ["det", "nsubj", "ROOT", "dative", "dobj"],
    ),
}


@pytest.fixture(scope="module")
def parser_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pipeline whose parser was trained until it had learned the sentences of ``PARSED``."""
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example
    from spacy.util import fix_random_seed

    fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    examples = []
    for text, (pos, heads, deps) in PARSED.items():
        gold = Doc(nlp.vocab, words=text.split(), pos=pos, heads=heads, deps=deps)
        examples.append(Example(nlp.make_doc(text), gold))
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(30):
        nlp.update(examples, sgd=optimizer)
    ruler = nlp.add_pipe("attribute_ruler")
    for text, (pos, _, _) in PARSED.items():
        for word, tag in zip(text.split(), pos, strict=True):
            ruler.add([[{"LOWER": word}]], {"POS": tag})
    for text, (_, heads, deps) in PARSED.items():
        doc = nlp(text)
        assert [token.head.i for token in doc] == heads
        assert [token.dep_ for token in doc] == deps
    return saved(nlp, tmp_path_factory.mktemp("pipelines") / "parser")


@pytest.mark.slow
def test_compounds_and_noun_chunks_by_the_parser(parser_folder: str) -> None:
    joined = SpacySelector(pipeline=parser_folder, compounds="joined", adjectives="none")
    assert joined.select(list(PARSED)) == [
        {"dog", "ice cream trucks"},
        {"signs", "drivers", "food"},
        {"dogs", "men"},
        {"signs", "stop", "orders"},  # adjacent, but no compound
    ]
    chunks = SpacySelector(pipeline=parser_folder, adjectives="noun-chunks")
    found = [words & {"small", "red", "cold", "happy"} for words in chunks.select(list(PARSED))]
    assert found == [{"small"}, {"red", "cold"}, set(), set()]
    # It runs only where it is needed.
    assert "parser" in joined.nlp.pipe_names
    assert "parser" not in SpacySelector(pipeline=parser_folder).nlp.pipe_names


def test_auto_prefers_the_trained_pipeline(
    tables_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package named en_core_web_sm, as created by spaCy's download."""
    package = tmp_path / "en_core_web_sm"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from spacy.util import load_model\n"
        f"def load(**options): return load_model({tables_folder!r}, **options)\n"
    )
    (package / "meta.json").write_text("{}")
    info = tmp_path / "en_core_web_sm-3.8.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: en_core_web_sm\nVersion: 3.8.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        selector = SpacySelector()
        assert selector.select(["the Hunde of schwarz"]) == [{"hund", "schwarz"}]
        found = selector.provenance()
        assert found["pipeline"] == "en_core_web_sm 3.8.0"
        assert selector.notes() == []
        assert "lexicon" not in found
        assert SpacySelector(pipeline="lexicon").provenance()["pipeline"] == "lexicon"
    finally:
        sys.modules.pop("en_core_web_sm", None)


# What is written down


def test_provenance_of_the_lexicon() -> None:
    from importlib.metadata import version

    found = Lexicon(compounds="joined").provenance()
    assert found["lexicon"] == f"textblob {version('textblob')}"
    assert found["rules"] == f"fsf-detectors {version('fsf-detectors')}"
    assert found["spacy"] == version("spacy")
    assert (found["compounds"], found["adjectives"]) == ("joined", "all")
    [note] = Lexicon().notes()
    assert "the lexicon of textblob" in note
    assert "spacy download en_core_web_sm" in note


def test_provenance_of_a_folder_depends_on_its_content(tables_folder: str) -> None:
    found = SpacySelector(pipeline=tables_folder).provenance()
    assert found["pipeline"] == "en_tables 1.2.3"
    assert tables_folder not in found.values()
    meta = Path(tables_folder, "tokenizer")
    content = meta.read_bytes()
    try:
        meta.write_bytes(content + b"x")
        changed = SpacySelector(pipeline=tables_folder).provenance()
    finally:
        meta.write_bytes(content)
    assert changed["sha256"] != found["sha256"]
    assert SpacySelector(pipeline=tables_folder).provenance() == found


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compounds": "glued"}, "compounds must be one of 'apart', 'joined', not 'glued'"),
        (
            {"adjectives": True},
            "adjectives must be one of 'all', 'noun-chunks', 'none', not True",
        ),
        ({"pipeline": "en_core_web_huge"}, "an installed spaCy pipeline .*not 'en_core_web_huge'"),
        ({"pipeline": "numpy"}, "an installed spaCy pipeline .*not 'numpy'"),
        ({"pipeline": None}, "pipeline must be a string, not None"),
        ({"pipeline": ""}, "an installed spaCy pipeline .*not ''"),
        ({"pipeline": "."}, r"an installed spaCy pipeline .*not '\.'"),
    ],
)
def test_options_are_checked_immediately(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SpacySelector(**options)


def test_a_folder_that_is_not_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "config.cfg").write_text("[nlp]\nlang = 3\n")
    with pytest.raises(DataError, match=r"spaCy 3\.\d+\.\d+ cannot load the pipeline '.*':"):
        SpacySelector(pipeline=str(tmp_path)).select(["a dog"])


def test_a_pipeline_without_parts_of_speech(tmp_path: Path) -> None:
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    selector = SpacySelector(pipeline=saved(nlp, tmp_path))
    with pytest.raises(DataError, match="must tag parts of speech; its components are sentencizer"):
        selector.select(["a dog"])


def test_a_missing_or_foreign_lexicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsf_detectors._lexicon import Lexicon as Words

    (tmp_path / "textblob" / "en").mkdir(parents=True)
    (tmp_path / "textblob" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "textblob", raising=False)
    with pytest.raises(DataError, match="en-lexicon.txt: no such file"):
        Words.load()
    (tmp_path / "textblob" / "en" / "en-lexicon.txt").write_text(";;; c\ndog VB\n")
    with pytest.raises(DataError, match="'dog' is a noun"):
        Words.load()


def test_what_is_not_needed_is_not_imported() -> None:
    code = (
        "import sys, fsf_detectors.captioner, fsf_detectors.clip_words, fsf_detectors.records\n"
        "from fsf_detectors.selection import SpacySelector\n"
        "SpacySelector().provenance()\n"
        "heavy = {'spacy', 'textblob', 'nltk', 'torch', 'transformers', 'PIL', 'huggingface_hub'}\n"
        "assert not heavy & set(sys.modules)\n"
        "assert SpacySelector(pipeline='lexicon').select(['two dogs']) == [{'dog'}]\n"
        "assert not {'textblob', 'nltk'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
