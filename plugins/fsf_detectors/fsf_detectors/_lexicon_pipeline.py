"""A spaCy pipeline that needs no download: English tokenizer, lexicon tagger, rule lemmatizer."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from fsf_detectors._lexicon import Lexicon
from fsf_detectors._tagging import LexiconTagger, universal

if TYPE_CHECKING:
    from collections.abc import Callable

    from spacy.language import Language
    from spacy.pipeline import Lemmatizer
    from spacy.tokens import Doc

__all__ = ["FACTORY", "LexiconWords", "lexicon_pipeline", "register_tagger"]

FACTORY = "fsf_lexicon_tagger"
_SPACE = ("_SP", "SPACE")
_NUMBER = {"NN": "Number=Sing", "NNS": "Number=Plur"}


@cache
def _lexicon() -> Lexicon:
    return Lexicon.load()


class LexiconTaggerPipe:
    """Sets ``tag_``, ``pos_`` and the grammatical number of nouns in spaCy's documents."""

    def __init__(self) -> None:
        self.tagger = LexiconTagger(_lexicon())

    def __call__(self, doc: Doc) -> Doc:
        words = [token for token in doc if not token.is_space]
        tags = self.tagger.tag([token.text for token in words])
        for token in doc:
            if token.is_space:
                token.tag_, token.pos_ = _SPACE
        for token, tag in zip(words, tags, strict=True):
            token.tag_, token.pos_ = tag, universal(tag)
            if tag in _NUMBER:
                token.set_morph(_NUMBER[tag])
        return doc


def register_tagger() -> None:
    """Register the tagger with spaCy under the name ``FACTORY``, once per process."""
    from spacy.language import Language

    if not Language.has_factory(FACTORY):
        Language.factory(
            FACTORY,
            assigns=["token.tag", "token.pos", "token.morph"],
            func=lambda nlp, name: LexiconTaggerPipe(),
        )


def lexicon_pipeline() -> Language:
    """Build the pipeline; it can be saved, and loaded again after ``register_tagger``.

    Raises:
        DataError: the installed TextBlob does not contain the lexicon.
    """
    import spacy
    from spacy.lookups import Lookups

    register_tagger()
    nlp = spacy.blank("en")
    nlp.add_pipe(FACTORY)
    lookups = Lookups()
    for name, table in _lexicon().lemma_tables().items():
        lookups.add_table(name, table)
    nlp.add_pipe("lemmatizer", config={"mode": "rule"}).initialize(lookups=lookups)
    return nlp


class LexiconWords:
    """The pipeline's tokens without its documents, which would take most of the time.

    Tokens depend only on the text between spaces, lemmas only on word and tag, so each is computed
    by spaCy once and cached. Only tagging needs the whole text.
    """

    def __init__(self, nlp: Language) -> None:
        from spacy.tokenizer import Tokenizer
        from spacy.vocab import Vocab

        rules = nlp.tokenizer
        # A vocabulary without attributes: the pipeline's computes twenty for each new word.
        self._vocab = Vocab()
        self._tokenizer = Tokenizer(
            self._vocab,
            rules=rules.rules,
            prefix_search=rules.prefix_search,
            suffix_search=rules.suffix_search,
            infix_finditer=rules.infix_finditer,
            token_match=rules.token_match,
            url_match=rules.url_match,
            faster_heuristics=rules.faster_heuristics,
        )
        self._lemmatizer: Lemmatizer = nlp.get_pipe("lemmatizer")
        self._pieces: dict[str, tuple[list[str], list[bool]]] = {}
        self.tags: Callable[[list[str]], list[str]] = nlp.get_pipe(FACTORY).tagger.tag

    def tokens(self, text: str) -> tuple[list[str], list[bool]]:
        """Return the tokens of a text, and for each whether the next follows without a space."""
        words: list[str] = []
        glued: list[bool] = []
        for piece in text.split():
            found = self._pieces.get(piece)
            if found is None:
                parts = [token.text for token in self._tokenizer(piece)]
                found = self._pieces[piece] = (parts, [True] * (len(parts) - 1) + [False])
            words += found[0]
            glued += found[1]
        return words, glued

    def lemma(self, word: str, tag: str) -> str:
        """Return the pipeline's lemma of a word with this tag."""
        from spacy.tokens import Doc

        pos, number = universal(tag), _NUMBER.get(tag, "")
        doc = Doc(self._vocab, words=[word], pos=[pos], morphs=[number])
        return self._lemmatizer(doc)[0].lemma_
