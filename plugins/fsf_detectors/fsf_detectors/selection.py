"""Selection of nouns and adjectives from captions with spaCy."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from fsf_detectors._captions import clean_caption
from fsf_detectors._phrases import in_preposition, is_negation, is_quantifier
from fsframework.interfaces import DataError, OptionError, WordSelector

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

    from fsf_detectors._lexicon_pipeline import LexiconWords

__all__ = ["SpacySelector"]

Compounds = Literal["apart", "joined"]
Adjectives = Literal["all", "noun-chunks", "none"]

_DEFAULT_PIPELINE = "en_core_web_sm"
# Components that do not affect parts of speech and lemmas, and all standard components. The first
# are disabled only if there are no others, because another component may read their output.
_NEEDLESS = {"ner", "entity_linker", "entity_ruler", "spancat", "textcat", "textcat_multilabel"}
_STANDARD = _NEEDLESS | {
    "attribute_ruler",
    "lemmatizer",
    "morphologizer",
    "parser",
    "sentencizer",
    "senter",
    "tagger",
    "tok2vec",
    "trainable_lemmatizer",
    "transformer",
}
_PROBE = "a black dog runs through the tall grass"
_NO_INNER = str.maketrans("", "", "-'’")
_NOUNS = ("NOUN", "PROPN")
_BEFORE_NOUN = ("DET", "NUM", "ADV", "VERB", "PRON")
_POSSESSIVES = {"my", "your", "his", "her", "its", "our", "their", "whose"}

# One letter per token, so that a noun chunk is a regular expression: determiner, adjective,
# participle (V), adverb (R), comma or conjunction, noun.
_CHUNK = re.compile("D+(?:R*[AV](?:C?R*[AV])*)?N+|R*A(?:C?R*A)*N+")
_KINDS = {"DET": "D", "NUM": "D", "ADJ": "A", "ADV": "R", "CCONJ": "C", "NOUN": "N", "PROPN": "N"}


class SpacySelector(WordSelector):
    """Selects nouns, as lemmas, and adjectives from captions with a spaCy pipeline.

    All words are lower-case and NFC-normalised. A word has at least one letter and consists of
    letters, digits and inner hyphens or apostrophes; a single letter of a script with capitals is
    not a word (the "t" of "t-shirt", which spaCy splits). Nouns are tokens that the pipeline tags
    ``NOUN``; proper nouns (``PROPN``) are left out, because they name who is shown, not what.
    Adjectives are tagged ``ADJ`` and keep their degree ("larger"). A noun without a lemma is used
    as written. Words of English complex prepositions ("on top of", "next to") and quantifiers
    before "of" ("a lot of", "a group of") are left out: they say nothing of what is shown. So is
    what a negation denies ("no dog", "without a leash or a collar", "is not visible"). Entities of
    HTML and tokens of models are removed first, and captions in capitals or with the capitals of a
    title are read in lower case.

    Source: Omega of Zheng, Ye and Zhang 2024, "Benchmarking Spurious Bias in Few-Shot Image
    Classifiers" (ECCV), section 4.2, step 2, and section 5.1.

    Args:
        pipeline: a spaCy pipeline, installed or a folder. ``auto`` is ``en_core_web_sm`` if it is
            installed, otherwise ``lexicon``: spaCy's English tokenizer, tags from the lexicon of
            TextBlob (Brill 1992) with rules of form and context, and spaCy's rule lemmatizer. On
            the development part of UD English EWT it finds nouns with F1 0.88 and adjectives with
            F1 0.87; it supports no other language.
        compounds: ``apart`` gives "stop" and "sign", ``joined`` gives "stop sign", from the arcs
            ``compound`` of the pipeline's parser or, without a parser, from adjacent nouns. Only
            the last noun is a lemma ("sports car").
        adjectives: ``all``; only those within ``noun-chunks``, spaCy's or, without a parser,
            determiners and adjectives before a noun, so that "the car is red" loses "red"; or
            ``none``.

    Raises:
        OptionError: an option is not one of these, or the pipeline is not installed.

    >>> selector = SpacySelector(pipeline="lexicon")
    >>> [sorted(words) for words in selector.select(["Two black dogs run past a stop sign."])]
    [['black', 'dog', 'sign', 'stop']]
    >>> joined = SpacySelector(pipeline="lexicon", compounds="joined", adjectives="none")
    >>> [sorted(words) for words in joined.select(["Two black dogs run past a stop sign."])]
    [['dog', 'stop sign']]
    """

    def __init__(
        self,
        *,
        pipeline: str = "auto",
        compounds: Compounds = "apart",
        adjectives: Adjectives = "all",
    ) -> None:
        for name, value, kind in (
            ("compounds", compounds, Compounds),
            ("adjectives", adjectives, Adjectives),
        ):
            if value not in get_args(kind):
                known = ", ".join(map(repr, get_args(kind)))
                raise OptionError(f"{name} must be one of {known}, not {value!r}")
        self.pipeline = pipeline
        self.compounds = compounds
        self.adjectives = adjectives
        self._found = _find(pipeline)

    @cached_property
    def nlp(self) -> Language:
        """The spaCy pipeline, loaded on first use.

        Raises:
            DataError: spaCy cannot load the pipeline, or it does not tag parts of speech.
        """
        from fsf_detectors._lexicon_pipeline import lexicon_pipeline, register_tagger

        if self._found == "lexicon":
            return lexicon_pipeline()
        import spacy

        register_tagger()
        try:
            nlp = spacy.load(self._found)
        except Exception as error:
            version = importlib.metadata.version("spacy")
            raise DataError(
                f"spaCy {version} cannot load the pipeline {self.pipeline!r}: {error}"
            ) from error
        factories = {name: nlp.get_pipe_meta(name).factory for name in nlp.pipe_names}
        if _STANDARD.issuperset(factories.values()):
            parsed = self.compounds == "joined" or self.adjectives == "noun-chunks"
            needless = _NEEDLESS if parsed else _NEEDLESS | {"parser"}
            for name, factory in factories.items():
                if factory in needless:
                    nlp.disable_pipe(name)
        if not nlp(_PROBE).has_annotation("POS"):
            raise DataError(
                f"the pipeline {self.pipeline!r} must tag parts of speech; its components are "
                f"{', '.join(nlp.pipe_names) or 'none'}"
            )
        return nlp

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        """Return nouns and adjectives of each caption; equal captions are processed once.

        Raises:
            DataError: the pipeline cannot be loaded, or does not tag parts of speech.
        """
        texts = [clean_caption(caption) for caption in captions]
        different = list(dict.fromkeys(texts))
        if not different:
            return []
        if self._found == "lexicon":
            found = map(self._by_lexicon, different)
        else:
            found = map(self._by_document, self.nlp.pipe(different))
        words = dict(zip(different, found, strict=True))
        return [words[text] for text in texts]

    def provenance(self) -> Mapping[str, str]:
        """Return the pipeline and the versions that the words depend on."""
        facts = {
            "selector": "spacy",
            "spacy": importlib.metadata.version("spacy"),
            "rules": f"fsf-detectors {importlib.metadata.version('fsf-detectors')}",
        }
        if self._found == "lexicon":
            from fsf_detectors._lexicon import lexicon_version

            facts |= {"pipeline": "lexicon", "lexicon": lexicon_version()}
        elif isinstance(self._found, Path):
            facts |= {"pipeline": _title(self._found), "sha256": _digest(self._found)}
        else:
            facts["pipeline"] = f"{self._found} {importlib.metadata.version(self._found)}"
        return facts | {"compounds": self.compounds, "adjectives": self.adjectives}

    def notes(self) -> list[str]:
        """Return a note if the lexicon replaces a trained pipeline."""
        if self._found != "lexicon":
            return []
        from fsf_detectors._lexicon import lexicon_version

        return [
            f"words are selected by the lexicon of {lexicon_version()}, not by a trained "
            f"pipeline; 'python -m spacy download {_DEFAULT_PIPELINE}' installs one"
        ]

    @cached_property
    def _lexicon_words(self) -> LexiconWords:
        from fsf_detectors._lexicon_pipeline import LexiconWords

        return LexiconWords(self.nlp)

    @cached_property
    def _known(self) -> dict[tuple[str, str], _Token]:
        return {}

    def _by_lexicon(self, text: str) -> frozenset[str]:
        """Select as from the lexicon pipeline's document, processing each word and tag once."""
        from fsf_detectors._tagging import universal

        source, known = self._lexicon_words, self._known
        words, glued = source.tokens(text)
        tokens = []
        for pair in zip(words, source.tags(words), strict=True):
            token = known.get(pair)
            if token is None:
                pos = universal(pair[1])
                lemma = source.lemma(*pair) if pos == "NOUN" else ""
                token = known[pair] = _token(pair[0], pos, pair[1], lemma)
            tokens.append(token)
        return self._selected(tokens, glued)

    def _by_document(self, doc: Doc) -> frozenset[str]:
        words = [token for token in doc if not token.is_space]
        tokens = [_token(word.text, word.pos_, word.tag_, word.lemma_) for word in words]
        glued = [
            not word.whitespace_ and word.i + 1 < len(doc) and not doc[word.i + 1].is_space
            for word in words
        ]
        if not doc.has_annotation("DEP"):
            return self._selected(tokens, glued)
        modifiers = [word.dep_ == "compound" and word.head.i > word.i for word in words]
        chunked = None
        if self.adjectives == "noun-chunks" and doc.vocab.get_noun_chunks is not None:
            inside = {i for chunk in doc.noun_chunks for i in range(chunk.start, chunk.end)}
            chunked = [word.i in inside for word in words]
        return self._selected(tokens, glued, modifiers, chunked)

    def _selected(
        self,
        tokens: list[_Token],
        glued: list[bool],
        modifiers: list[bool] | None = None,
        chunked: list[bool] | None = None,
    ) -> frozenset[str]:
        """Return the words of a text.

        Args:
            tokens: all tokens except spaces.
            glued: whether the next token follows without a space.
            modifiers: whether the token belongs to a noun on its right; ``None`` if unknown.
            chunked: whether the token is in a noun chunk; ``None`` if unknown.
        """
        tokens = _without_negated(_without_phrases(tokens))
        if self.compounds == "joined":
            words = set(_joined(tokens, glued, modifiers))
        else:
            words = {token.lemma for token in tokens if token.pos == "NOUN"}
        if self.adjectives == "noun-chunks":
            inside = _chunk_pattern(tokens) if chunked is None else chunked
            pairs = zip(tokens, inside, strict=True)
            words |= {token.text for token, chunk in pairs if chunk and token.pos == "ADJ"}
        elif self.adjectives == "all":
            words |= {token.text for token in tokens if token.pos == "ADJ"}
        return frozenset(
            word for word in words if len(word) > 1 or word.upper() == word.lower() != ""
        )


def _without_phrases(tokens: list[_Token]) -> list[_Token]:
    """Return tokens of which those in complex prepositions and quantifiers have no part of speech.

    A noun after another noun is no quantifier: "a parking lot of a shop".
    """
    words, left = [token.text for token in tokens], []
    for i, token in enumerate(tokens):
        alone = token.pos == "NOUN" and (i == 0 or tokens[i - 1].pos not in ("NOUN", "PROPN"))
        if (token.pos in ("NOUN", "ADJ") and in_preposition(words, i)) or (
            alone and is_quantifier(words, i)
        ):
            token = token._replace(pos="")
        left.append(token)
    return left


def _without_negated(tokens: list[_Token]) -> list[_Token]:
    """Return tokens of which nouns and adjectives that a negation denies have no part of speech.

    It denies the noun phrase after it, and others joined by "or" or "nor": "no big dog or cat".
    """
    words, left = [token.text for token in tokens], []
    denies = named = False
    for i, token in enumerate(tokens):
        if is_negation(words, i):
            denies, named = True, False
        elif denies and (token.pos in _NOUNS or (token.pos == "ADJ" and not named)):
            named = named or token.pos in _NOUNS
            token = token._replace(pos="")
        elif denies and (
            token.text in ("or", "nor") or (token.kind == "C" and _listed(tokens[i:]))
        ):
            named = False
        elif named or token.pos not in _BEFORE_NOUN:
            denies = named = False
        left.append(token)
    return left


def _listed(tokens: list[_Token]) -> bool:
    """Return whether commas and noun phrases are followed by "or": ", cat, or bird"."""
    phrase = (*_NOUNS, "ADJ", *_BEFORE_NOUN)
    rest = (token for token in tokens if token.kind != "C" or token.text)  # without commas
    return next((t.text for t in rest if t.pos not in phrase), "") in ("or", "nor")


class _Token(NamedTuple):
    pos: str
    text: str  # lower-case; empty if it is not shaped like a word
    lemma: str  # the same
    hyphen: bool
    kind: str  # its letter in ``_CHUNK``


def _token(text: str, pos: str, tag: str, lemma: str) -> _Token:
    kind = _KINDS.get(pos, "o")
    if tag in ("VBG", "VBN") and pos == "VERB":
        kind = "V"
    elif text in (",", "&", "-"):
        kind = "C"
    elif text.lower() in _POSSESSIVES:
        kind = "D"
    return _Token(pos, _word(text), _word(lemma or text), text == "-", kind)


@lru_cache(maxsize=1 << 16)
def _word(text: str) -> str:
    """Return the text in lower case, or "" if it is not a word."""
    word = unicodedata.normalize("NFC", text.lower())
    core = word[:1] + word[1:-1].translate(_NO_INNER) + word[1:][-1:]
    # Vowel signs of many scripts are marks, which isalnum() does not count.
    shaped = all(char.isalnum() or unicodedata.category(char)[0] == "M" for char in core)
    return word if shaped and any(map(str.isalpha, word)) else ""


def _joined(tokens: list[_Token], glued: list[bool], modifiers: list[bool] | None) -> Iterator[str]:
    """Yield each noun together with the nouns before it that belong to it."""
    before = ""  # the left part of the compound
    for i, token in enumerate(tokens):
        if token.pos != "NOUN" or not token.text:
            continue
        link, step = " ", 1
        if i + 2 < len(tokens) and tokens[i + 1].hyphen and glued[i] and glued[i + 1]:
            link, step = "-", 2
        ahead = tokens[i + step] if i + step < len(tokens) else None
        if (
            ahead is not None
            and ahead.pos == "NOUN"
            and ahead.text
            and (modifiers is None or modifiers[i])
        ):
            before += token.text + link
        else:
            yield before + token.lemma
            before = ""


def _chunk_pattern(tokens: list[_Token]) -> list[bool]:
    """Return for each token whether it is in a noun chunk according to ``_CHUNK``."""
    inside = [False] * len(tokens)
    for found in _CHUNK.finditer("".join(token.kind for token in tokens)):
        inside[found.start() : found.end()] = [True] * (found.end() - found.start())
    return inside


def _find(pipeline: str) -> str | Path:
    """Return ``lexicon``, the name of an installed pipeline or a pipeline's folder."""
    if not isinstance(pipeline, str):
        raise OptionError(f"pipeline must be a string, not {pipeline!r}")
    if pipeline == "auto":
        return _DEFAULT_PIPELINE if _installed(_DEFAULT_PIPELINE) else "lexicon"
    if pipeline == "lexicon" or _installed(pipeline):
        return pipeline
    folder = Path(pipeline)
    if pipeline and (folder / "config.cfg").is_file():
        return folder
    raise OptionError(
        "pipeline must be auto, lexicon, an installed spaCy pipeline or a folder with a "
        f"config.cfg, not {pipeline!r}; 'python -m spacy download NAME' installs spaCy's pipelines"
    )


def _installed(name: str) -> bool:
    """Return whether a pipeline of this name is installed, without importing it or spaCy."""
    try:
        importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    return any((Path(folder) / "meta.json").is_file() for folder in folders)


def _title(folder: Path) -> str:
    """Return language, name and version of a pipeline from its meta.json."""
    try:
        meta: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        return f"{meta['lang']}_{meta['name']} {meta['version']}"
    except (OSError, ValueError, KeyError):
        return folder.name


def _digest(folder: Path) -> str:
    """Return the SHA-256 of a folder's files and their names."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix().encode()
        content = path.read_bytes()
        digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return digest.hexdigest()
