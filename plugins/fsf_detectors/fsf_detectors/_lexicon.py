"""English words with their most common part of speech, read from the installed TextBlob."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsframework.interfaces import DataError

__all__ = ["Lexicon", "lexicon_version"]

_FILE = Path("en", "en-lexicon.txt")
_COMMENT = ";;;"
_SIBILANTS = ("s", "x", "z", "ch", "sh")
_DOUBLING = re.compile("(?:[^aeiou]|qu)*[aeiou][^aeiouwxy]")
_CONSONANT_Y = re.compile("[^aeiou]y$")

# Plurals without a regular suffix, a closed class in English.
_IRREGULAR_PLURALS = {
    "cacti": "cactus",
    "calves": "calf",
    "children": "child",
    "dice": "die",
    "feet": "foot",
    "geese": "goose",
    "halves": "half",
    "hooves": "hoof",
    "kine": "cow",
    "leaves": "leaf",
    "lice": "louse",
    "lives": "life",
    "loaves": "loaf",
    "mice": "mouse",
    "oxen": "ox",
    "scarves": "scarf",
    "selves": "self",
    "teeth": "tooth",
    "thieves": "thief",
}

# Nouns without a singular in this sense: pairs and some mass nouns.
_PLURAL_ONLY = (
    "barracks binoculars clothes goggles headphones headquarters jeans leggings outskirts pajamas "
    "panties pants people pliers police pyjamas scissors series shorts species sunglasses "
    "surroundings sweatpants thanks tights tongs trousers tweezers"
)

# Suffixes of plurals and their singulars, specific rules before general ones: if the lexicon knows
# several singulars the last rule wins, if it knows none the first.
_PLURAL_RULES = (
    ("women", "woman"),
    ("men", "man"),
    ("ies", "y"),
    ("lves", "lf"),
    ("rves", "rf"),
    ("nives", "nife"),
    ("wives", "wife"),
    ("sses", "ss"),
    ("shes", "sh"),
    ("ches", "ch"),
    ("xes", "x"),
    ("zzes", "zz"),
    ("zzes", "z"),
    ("oes", "o"),
    ("oses", "ose"),
    ("ses", "s"),
    ("s", ""),
)


@dataclass(frozen=True)
class Lexicon:
    """Words with their most common Penn Treebank tag.

    Args:
        tags: tag of each word; words that usually have capitals are written with them.
        name: name and version to cite, such as ``textblob 0.20.1``.
    """

    tags: Mapping[str, str]
    name: str

    @classmethod
    def load(cls) -> Lexicon:
        """Read the lexicon that TextBlob ships: 94,000 words, after Brill (1992).

        The file is read directly, because importing the package would import NLTK.

        Raises:
            DataError: TextBlob is not installed, or its files are not the known ones.
        """
        spec = importlib.util.find_spec("textblob")
        if spec is None or not spec.submodule_search_locations:
            raise DataError("the lexicon needs the package 'textblob', which is not installed")
        path = Path(spec.submodule_search_locations[0]) / _FILE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DataError(
                f"{path}: no such file; the lexicon of textblob is expected here"
            ) from None
        tags = {}
        for line in text.splitlines():
            entry = line.split()
            if len(entry) > 1 and not line.startswith(_COMMENT):
                tags[entry[0]] = entry[1].split("|")[0]
        if tags.get("dog") != "NN":
            raise DataError(f"{path}: must be the lexicon of textblob, where 'dog' is a noun (NN)")
        return cls(tags, lexicon_version())

    def verb(self, base: str) -> bool:
        """Return whether a word can be a verb: tagged as one, or with a form in -ing or -ed."""
        tags = self.tags
        if tags.get(base) in ("VB", "VBP"):
            return True
        # A short syllable doubles its last letter: "stopping" is of "stop", "caring" not of "car".
        stem = base + base[-1:] if _DOUBLING.fullmatch(base) else base.removesuffix("e")
        return tags.get(stem + "ing") == "VBG" or tags.get(stem + "ed") in ("VBD", "VBN")

    def noun(self, base: str) -> bool:
        """Return whether a word can be a singular noun: tagged as one, or with a plural."""
        if self.tags.get(base) == "NN":
            return True
        if base.endswith(_SIBILANTS):
            plural = base + "es"
        elif _CONSONANT_Y.search(base):
            plural = base[:-1] + "ies"
        else:
            plural = base + "s"
        return self.tags.get(plural) == "NNS"

    def plural(self, word: str) -> bool:
        """Return whether a word is certainly a plural, independent of its tag."""
        if word in _IRREGULAR_PLURALS or (word.endswith("men") and word[:-2] + "an" in self.tags):
            return True
        if len(word) < 5 or word.endswith(("ss", "us", "is")):
            return False
        return any(self.tags.get(stem) == "NN" for stem in self.stems(word))

    def gerund(self, word: str) -> bool:
        """Return whether a word in -ing can be a form of a verb: "fishing", but not "ceiling"."""
        stem = word.removesuffix("ing")
        if stem == word or len(stem) < 2:
            return False
        bases = {stem, stem + "e"} if stem[-1] != stem[-2] else {stem, stem[:-1]}
        return any(self.tags.get(base) in ("VB", "VBP") or self.verb(base) for base in bases)

    def stems(self, word: str) -> list[str]:
        """Return the words of which ``word`` may be the form in -s, best first; may be empty."""
        found = []
        if word.endswith("ies"):
            found.append(word[:-3] + "y")
        if word.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")):
            found.append(word[:-2])
        if word.endswith("s") and not word.endswith("ss"):
            found.append(word[:-1])
        return found

    def lemma_tables(self) -> dict[str, dict[str, object]]:
        """Return the tables of spaCy's rule lemmatizer: rules, exceptions and known singulars."""
        exceptions = {word: [word] for word in _PLURAL_ONLY.split()}
        exceptions |= {plural: [singular] for plural, singular in _IRREGULAR_PLURALS.items()}
        singulars = dict.fromkeys(word for word, tag in self.tags.items() if tag == "NN")
        return {
            "lemma_rules": {"noun": _PLURAL_RULES},
            "lemma_exc": {"noun": exceptions},
            "lemma_index": {"noun": singulars},
        }


def lexicon_version() -> str:
    """Return name and version of the package that contains the lexicon."""
    try:
        return f"textblob {importlib.metadata.version('textblob')}"
    except importlib.metadata.PackageNotFoundError:
        raise DataError(
            "the lexicon needs the package 'textblob', which is not installed"
        ) from None
