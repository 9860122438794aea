"""Part-of-speech tagging by a lexicon, the form of a word and its neighbours."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fsf_detectors._lexicon import Lexicon

__all__ = ["LexiconTagger", "universal"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UNIVERSAL = {
    tag: pos
    for pos, tags in {
        "NOUN": "NN NNS",
        "PROPN": "NNP NNPS",
        "ADJ": "JJ JJR JJS",
        "VERB": "VB VBD VBG VBN VBP VBZ",
        "AUX": "MD",
        "ADV": "RB RBR RBS WRB",
        "DET": "DT PDT WDT",
        "PRON": "PRP PRP$ WP WP$ EX",
        "NUM": "CD",
        "ADP": "IN RP",
        "PART": "TO POS",
        "CCONJ": "CC",
        "INTJ": "UH",
        "SYM": "SYM $ #",
        "PUNCT": ". , : ( ) \" `` '' -LRB- -RRB- HYPH",
    }.items()
    for tag in tags.split()
}

# Closed classes that the lexicon lacks or lists with a rarer use.
_CLOSED = {
    word: tag
    for tag, words in {
        "PRP": "anybody anyone anything everybody everyone everything nobody none nothing "
        "somebody someone something i you he she it we they me him us them myself yourself "
        "himself herself itself ourselves themselves",
        "PRP$": "my your his her its our their",
        "DT": "a an the this these those some any each every both no another",
        "VBZ": "am are is was were be been being has 'm 're 've",
        "MD": "would could should will may might must 'll 'd",
        "RB": "not n't never also too very etc etc.",
        "POS": "'s '",
        "WP": "who whom",
        "IN": "while whilst",
        "CC": "and or & nor but",
    }.items()
    for word in words.split()
}
_ABBREVIATIONS = _set("AM IT US")  # other words than "am", "it" and "us"

_NOMINAL = _set("NN NNS NNP NNPS")
_ADJECTIVAL = _set("JJ JJR JJS")
_FINITE = _set("VB VBP VBZ VBD MD")
_DETERMINERS = _set("DT PRP$ POS WP$ PDT")
_PRESENT_OR_PAST = _set("VBP VBZ VBD MD")
_OBJECT = _set("DT PRP$ PRP PDT")  # tags that begin an object
_BEFORE_NOUN = _NOMINAL | _ADJECTIVAL | _set("CD VBG VBN")
_AFTER_VERB = _set("IN RP RB TO VBG")

_BE = _set("is are was were be been being am 'm 're")
_HELPERS = _set("do does did help helps helped let lets make makes made have go")
_SUBJECTS = _set("i you we they who")
_SINGULAR_SUBJECTS = _set("he she it who that which")
_ONE = _set("one another each")
_SINGULAR_DETERMINERS = _set("a an this that each every 's")
_IS_BEFORE = _set("it that this he she there here what where who how let")  # "it's": is
_PLACES = _set("next close adjacent up down back over on in according")  # "next to water"
_CLAUSES = _set(
    "that if because while whilst as than whether since so when though although until before after"
)
_JOINING = _set("and or , - &")
_ENDS = _set(". ! ? : ; ... -- ( \" `` '' “ ”")
_DEGREE = _set("very so too more most quite really extremely pretty highly")
_MANNER = _set("hard fast early late long much first next wrong right straight far high low")
_NEVER_NOUNS = _set("other many several have do see get")

_NUMBER = re.compile(r"[#$€£+-]?\d[\d.,:/%-]*(k|m|b|s|mm|am|pm)?", re.IGNORECASE)
_ORDINAL = re.compile(r"\d*(1st|2nd|3rd|\dth)", re.IGNORECASE)
_PREFIXES = ("un", "non", "non-", "re", "re-", "mis", "over", "under")
_TAG_OF_ENDING = (
    *(("ing", "VBG"), ("ed", "VBN"), ("ly", "RB")),
    *(
        (e, "JJ")
        for e in _set("able ible ful less ous ive ish ic ical ial ual ient ary like esque")
    ),
)
_DEMONYM_ENDINGS = ("an", "ese", "ish", "ic", "ch", "ni", "qi")


@dataclass(frozen=True, slots=True)
class _Entry:
    """The properties of a word without its context."""

    tag: str
    lower: str
    fixed: bool = True  # the tag does not depend on the context
    verb: bool = False  # whether it can be a verb
    noun: bool = False
    gerund: bool = False
    capital: bool = False
    article: bool = False  # "a" or "an"
    opens: bool = False  # a clause may begin after it
    ends: bool = False  # it ends a sentence
    common: _Entry | None = None  # entry of the word without capitals, if that is a word


class LexiconTagger:
    """Tags words by a lexicon, and by rules of form and context where it does not decide.

    Source: the stages are those of Brill (1992), "A simple rule-based part of speech tagger";
    the rules are ours. The inflected forms of a word in the lexicon determine which other tags it
    may have.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._entries: dict[str, _Entry] = {}

    def tag(self, words: Sequence[str]) -> list[str]:
        """Return the Penn Treebank tag of each token of a text.

        Two tags are used differently: ``ADD`` for addresses, as in the English Web Treebank, and
        ``FW`` for any word in another script.
        """
        known = self._entries
        entries = []
        for word in words:
            entry = known.get(word)
            if entry is None:
                entry = known[word] = self._entry(word)
            entries.append(entry)
        return _in_context(entries)

    def _entry(self, word: str) -> _Entry:
        tags = self._lexicon.tags
        lower = word.lower().replace("’", "'")
        if lower in _CLOSED and word not in _ABBREVIATIONS:
            return self._plain(lower, _CLOSED[lower])
        form = self._by_form(lower)
        if word == lower or form in ("ADD", "CD", ".") or _ORDINAL.fullmatch(lower):
            return self._plain(lower, tags.get(lower) or form)
        tag, common = tags.get(word), None
        if lower in tags or self._lexicon.noun(lower) or self._compound(lower):
            common = self._plain(lower, tags.get(lower) or form)
        if common is not None and common.tag in _ADJECTIVAL:
            tag = common.tag
        elif tag is None or (tag in ("NN", "NNS") and common is None):
            tag = "NNP"
        return replace(self._plain(lower, tag), capital=True, common=common)

    def _plain(self, word: str, tag: str) -> _Entry:
        lexicon = self._lexicon
        gerund = verb = noun = False
        if word in _CLOSED:
            fixed = tag != "POS"
        else:
            if tag == "NN" and lexicon.plural(word):
                tag = "NNS"
            if tag == "NN":
                noun, verb, gerund = True, lexicon.verb(word), lexicon.gerund(word)
            elif tag in ("VB", "VBP", "JJ"):
                noun = word not in _NEVER_NOUNS and lexicon.noun(word)
            elif tag in ("NNS", "VBZ"):
                stems = lexicon.stems(word)
                # A noun that is not in the lexicon may be a new verb: "a boy skateboards".
                known = word in lexicon.tags and any(stem in lexicon.tags for stem in stems)
                verb = tag == "VBZ" or not known or any(map(lexicon.verb, stems))
                noun = tag == "NNS" or any(map(lexicon.noun, stems))
            fixed = tag not in _RULES or (tag in ("NN", "NNS") and not verb and not gerund)
        return _Entry(
            tag,
            word,
            fixed,
            verb,
            noun,
            gerund,
            article=word in ("a", "an"),
            opens=tag in ("CC", "WP", "WDT", ",") or word in _CLAUSES or word in _ENDS,
            ends=word in _ENDS,
        )

    def _by_form(self, word: str) -> str:
        """Return a tag for a lower-case word that is not in the lexicon."""
        return _by_characters(word) or self._by_known_part(word) or self._by_ending(word)

    def _by_known_part(self, word: str) -> str:
        """Return the tag of the known word that a word contains; empty if it contains none."""
        tags = self._lexicon.tags
        for prefix in _PREFIXES:
            rest = word.removeprefix(prefix)
            if rest != word and len(rest) > 3 and rest in tags:
                return tags[rest]
        proper = tags.get(word.title())
        if proper == "JJ" or (proper == "NNP" and word.endswith(("an", "ese", "ish"))):
            return "JJ"  # "asian"
        return ""

    def _by_ending(self, word: str) -> str:
        for ending, tag in _TAG_OF_ENDING:
            if word.endswith(ending):
                return tag
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            stems = self._lexicon.stems(word)
            verbal = any(map(self._lexicon.verb, stems))
            return "VBZ" if verbal and not any(map(self._lexicon.noun, stems)) else "NNS"
        if "-" in word[1:-1] or self._derived(word, "y", "NN"):
            return "JJ"
        if self._derived(word, "est", "JJ"):
            return "JJS"
        return "JJR" if self._derived(word, "er", "JJ") else "NN"

    def _derived(self, word: str, ending: str, tag: str) -> bool:
        """Return whether a word without its ending has a tag, such as "snow" for "snowy"."""
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < 3:
            return False
        stems = {stem, stem + "e", stem.removesuffix("i") + "y"}
        if stem[-1] == stem[-2]:
            stems.add(stem[:-1])
        return any(self._lexicon.tags.get(form) == tag for form in stems)

    def _compound(self, word: str) -> bool:
        """Return whether a word is two nouns written as one, such as "snowboarder"."""
        tags = self._lexicon.tags
        return any(
            tags.get(word[:i]) in ("NN", "JJ", "VB") and tags.get(word[i:]) in ("NN", "NNS")
            for i in range(4, len(word) - 3)
        )


def _by_characters(word: str) -> str:
    """Return the tag of a word of unusual characters; empty for other words."""
    letters = [char for char in word if char.isalpha()]
    if not any(map(str.isalnum, word)):
        return "."
    if letters and not any("LATIN" in unicodedata.name(char, "") for char in letters):
        return "FW"
    if "@" in word or "://" in word or word.startswith("www."):
        return "ADD"
    if _ORDINAL.fullmatch(word):
        return "JJ"
    if _NUMBER.fullmatch(word) or not letters:
        return "CD"
    return "POS" if word[0] == "'" else ""


class _Context:
    """The tagger's position in a text: words to the left are tagged, those to the right not."""

    __slots__ = (
        "ahead",
        "before",
        "clause_open",
        "determined",
        "first",
        "last",
        "next",
        "prev",
        "rest",
        "second",
        "singular",
        "start",
        "third",
    )

    def __init__(self) -> None:
        self.prev = self.before = ""  # tags of the last word and of the one before it
        self.last = self.second = ""  # these words
        self.ahead = "."  # first tag of the next word
        self.next: _Entry | None = None
        self.rest: Iterable[_Entry] = ()  # the next word and all after it
        self.start = True  # a sentence has not begun yet
        self.first = False  # the word is the first of a sentence
        self.clause_open = True  # no finite verb has been found yet
        self.determined = False  # in a noun phrase that began with a determiner or a number
        self.third = False  # after a verb in the third person
        self.singular = False  # in a noun phrase that began with "a" or "an"

    @property
    def before_noun(self) -> bool:
        """Whether the noun phrase continues."""
        if self.singular and self.ahead == "VB":
            return True  # "a red stop sign": a singular takes no verb in this form
        joined = self.next is not None and self.next.lower in _JOINING
        return joined or self.ahead in _BEFORE_NOUN

    @property
    def after_preposition(self) -> bool:
        return self.prev == "IN" and self.last not in _CLAUSES


def _singular_noun(entry: _Entry, at: _Context) -> str:
    if entry.gerund and (
        at.ahead in _OBJECT
        or at.last in _BE
        or (at.prev == "NNS" and not at.singular and at.ahead not in _NOMINAL)
    ):
        return "VBG"
    if not entry.verb:
        return "NN"
    if at.prev == "MD" or (at.prev == "TO" and at.second not in _PLACES):
        return "VB"
    if at.last in ("not", "n't") and at.before in _FINITE:
        return "VB"
    if at.first and at.ahead in _OBJECT:
        return "VB"
    plural = at.prev == "NNS" and not at.singular
    if at.last in _SUBJECTS or (plural and at.clause_open and at.ahead not in _NOMINAL):
        return "VBP"
    return "NN"


def _plain_verb(entry: _Entry, at: _Context) -> str:
    # "two red stop signs", but "men in red play soccer"
    modified = at.determined and (at.prev in _ADJECTIVAL or at.prev == "CD")
    if at.prev in _DETERMINERS or (modified and at.ahead in _NOMINAL):
        return "NN"
    if at.last in _BE:
        return "NN" if entry.noun else "JJ"
    if entry.noun and (
        at.prev in _ADJECTIVAL
        or at.prev in ("CD", "NN", "VBG")
        or at.after_preposition
        or (at.prev in _FINITE and at.prev != "MD" and at.last not in _HELPERS)
    ):
        return "NN"
    return entry.tag


def _plural_noun(entry: _Entry, at: _Context) -> str:
    if not entry.verb:
        return "NNS"
    if at.last in _SINGULAR_SUBJECTS or (at.last in _ONE and at.ahead not in _NOMINAL):
        return "VBZ"
    if at.prev == "CC" and at.third and (at.before != "NNS" or at.ahead in _OBJECT):
        return "VBZ"  # "sits and watches"
    if at.clause_open and at.prev in ("NN", "NNP"):
        # "a dog jumps": the article requires a singular, so this is not a plural.
        if at.singular or at.ahead in _OBJECT:
            return "VBZ"
        # A clause has one finite verb, so check whether another one follows.
        if at.ahead in _AFTER_VERB and not any(later.tag in _PRESENT_OR_PAST for later in at.rest):
            return "VBZ"
    if at.clause_open and at.prev == "JJ" and not at.determined and at.ahead in _OBJECT:
        return "VBZ"  # "a man in blue rides a horse"
    return "NNS"


def _past_tense(entry: _Entry, at: _Context) -> str:
    return "VBN" if at.prev in _DETERMINERS else "VBD"


def _verb_in_s(entry: _Entry, at: _Context) -> str:
    if at.prev == "CD" or (at.prev in _DETERMINERS and at.last not in _SINGULAR_DETERMINERS):
        return "NNS"
    before_noun = at.prev in _ADJECTIVAL or at.prev in ("VBG", "VB") or at.after_preposition
    return "NNS" if entry.noun and before_noun else "VBZ"


def _adjective(entry: _Entry, at: _Context) -> str:
    if at.before_noun:
        return entry.tag
    if entry.lower in ("past", "opposite") and at.ahead in _OBJECT:
        return "IN"
    if entry.lower in _MANNER and (
        at.prev in _FINITE or at.prev in _NOMINAL or at.prev in ("VBG", "VBN")
    ):
        return "RB"
    headless = at.prev in _DETERMINERS or at.prev in _ADJECTIVAL or at.prev in ("CD", "NN")
    return "NN" if entry.noun and headless else entry.tag


def _participle(entry: _Entry, at: _Context) -> str:
    if at.ahead in _NOMINAL or at.ahead in _ADJECTIVAL or at.last in _ONE:
        return "VBG"
    within = at.prev in _ADJECTIVAL and at.determined and at.before not in _NOMINAL
    headless = at.prev in _DETERMINERS or within
    return "NN" if headless else "VBG"


def _past_participle(entry: _Entry, at: _Context) -> str:
    return "JJ" if at.last in _DEGREE else "VBN"


def _name(entry: _Entry, at: _Context) -> str:
    capital_next = at.next is not None and at.next.capital
    if at.ahead in ("NN", "NNS"):
        demonym = entry.common is None and entry.lower.endswith(_DEMONYM_ENDINGS)
        return "JJ" if demonym and not capital_next else "NNP"
    # "a Frisbee", "an ATV": a name takes no indefinite article.
    return "NN" if at.singular and not capital_next else "NNP"


def _adverb(entry: _Entry, at: _Context) -> str:
    modifies = at.prev in _DETERMINERS and at.ahead in ("NN", "NNS")
    return "JJ" if modifies and not entry.lower.endswith("ly") else "RB"


def _clitic(entry: _Entry, at: _Context) -> str:
    return "VBZ" if at.last in _IS_BEFORE or at.ahead == "DT" else "POS"


_RULES: dict[str, Callable[[_Entry, _Context], str]] = {
    "NN": _singular_noun,
    "NNS": _plural_noun,
    "NNP": _name,
    "VB": _plain_verb,
    "VBP": _plain_verb,
    "VBZ": _verb_in_s,
    "VBG": _participle,
    "VBD": _past_tense,
    "VBN": _past_participle,
    "JJ": _adjective,
    "RB": _adverb,
    "POS": _clitic,
}


def _in_context(entries: list[_Entry]) -> list[str]:
    """Return the tags of a text, from left to right."""
    tags: list[str] = []
    at = _Context()
    for i, entry in enumerate(entries, start=1):
        following = entries[i] if i < len(entries) else None
        at.first = at.start
        if at.start:
            if entry.common is not None and not (following and following.capital):
                entry = entry.common  # the capital only marks the start of the sentence
            at.start = not entry.lower[:1].isalnum()
        tag = entry.tag
        if not entry.fixed:
            at.next = following
            at.ahead = following.tag if following is not None else "."
            at.rest = islice(entries, i, None)
            tag = _RULES[tag](entry, at)
        tags.append(tag)
        if tag in _FINITE:
            at.third = at.third or tag == "VBZ"
            at.clause_open = at.singular = at.determined = False
        elif tag not in _BEFORE_NOUN:
            at.singular = entry.article
            at.determined = tag in _DETERMINERS
            if entry.opens:
                at.clause_open = True
                if entry.ends:
                    at.start, at.third = True, False
        elif tag == "CD":
            at.determined = True
        at.before, at.prev = at.prev, tag
        at.second, at.last = at.last, entry.lower
    return tags


def universal(tag: str) -> str:
    """Return the part of speech of Universal Dependencies for a Penn Treebank tag."""
    return _UNIVERSAL.get(tag, "X")
