"""Quality and speed of selecting nouns and adjectives from captions without a trained pipeline.

Run ``python benchmarks/word_selection.py``; it takes about a minute and reads the reference data
next to the checkout. The baseline is TextBlob's own tagger, whose lexicon ours uses, with its
tokenizer, its tags and its ``singularize``.

F1 is that of one part of speech over the 25,147 gold tokens of the development part of UD English
EWT: a token is correct if it is tagged NOUN (ADJ) and its UPOS is NOUN (ADJ). Proper nouns (PROPN)
are not nouns on either side. Lemmas are compared with the treebank's, in lower case, over the
tokens that are NOUN on both sides.

Captions per second are those of the 40,460 captions of Flickr8k through ``select``, in processor
time: the first time, when every word is new, and the second time. "documents" are spaCy's, from the
same pipeline after saving and loading it. Memory is the peak resident size of a process minus that
of a bare interpreter; each row runs in a separate process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TREEBANK = SHARED / "pos" / "en_ewt-ud-dev.conllu"
CAPTIONS = SHARED / "captions" / "flickr8k.token.txt.gz"
FLOORS = {"NOUN": 0.83, "ADJ": 0.83, "captions/s": 5_000}
ROWS = ("lexicon", "lexicon, documents", "TextBlob")

Gold = list[tuple[str, str, str]]  # word, part of speech, lemma
Tagged = list[tuple[str, str]]  # part of speech, lemma


def sentences() -> Iterator[Gold]:
    """Yield the gold tokens of each sentence."""
    for block in TREEBANK.read_text(encoding="utf-8").split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines()]
        found = [(row[1], row[3], row[2]) for row in rows if row[0].isdigit()]
        if found:
            yield found


def quality(tag: Callable[[list[str]], Tagged]) -> dict[str, float]:
    """Return precision, recall and F1 of both parts of speech and the accuracy of lemmas."""
    pairs = [
        (gold, mine)
        for sentence in sentences()
        for gold, mine in zip(sentence, tag([word for word, *_ in sentence]), strict=True)
    ]
    figures = {}
    for pos in ("NOUN", "ADJ"):
        hits = sum(gold[1] == mine[0] == pos for gold, mine in pairs)
        precision = hits / sum(mine[0] == pos for _, mine in pairs)
        recall = hits / sum(gold[1] == pos for gold, _ in pairs)
        figures |= {f"{pos} P": precision, f"{pos} R": recall}
        figures[pos] = 2 * precision * recall / (precision + recall)
    lemmas = [
        gold[2].lower() == mine[1].lower() for gold, mine in pairs if gold[1] == mine[0] == "NOUN"
    ]
    return figures | {"lemma": sum(lemmas) / len(lemmas)}


def seconds(select: Callable[[list[str]], object], captions: list[str]) -> float:
    start = time.process_time()
    select(captions)
    return time.process_time() - start


def measure(row: str) -> dict[str, float]:
    """Measure one row of the table."""
    bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with gzip.open(CAPTIONS, "rt", encoding="utf-8") as file:
        captions = [line.rstrip("\n").split("\t")[1] for line in file]
    if row == "TextBlob":
        select, tag = textblob()
    else:
        select, tag = ours(documents=row != "lexicon")
    figures = {
        "first": len(captions) / seconds(select, captions),
        "captions/s": len(captions) / seconds(select, captions),
        "MiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - bare) / 1024,
    }
    return figures | quality(tag)


def ours(documents: bool) -> tuple[Callable[[list[str]], object], Callable[[list[str]], Tagged]]:
    """Return ``select`` of a loaded selector, and its pipeline as a tagger of tokens."""
    from spacy.tokens import Doc

    from fsf_detectors.selection import SpacySelector

    selector = SpacySelector(pipeline="lexicon")
    nlp = selector.nlp
    if documents:
        with tempfile.TemporaryDirectory() as folder:
            nlp.to_disk(folder)
            selector = SpacySelector(pipeline=folder)
            nlp = selector.nlp

    def tag(words: list[str]) -> Tagged:
        return [(token.pos_, token.lemma_) for token in nlp(Doc(nlp.vocab, words=words))]

    return selector.select, tag


def textblob() -> tuple[Callable[[list[str]], object], Callable[[list[str]], Tagged]]:
    """Return the same for TextBlob."""
    from textblob.en import parser
    from textblob.en import tag as tag_text
    from textblob.inflect import singularize

    nouns, adjectives = {"NN": False, "NNS": True}, {"JJ", "JJR", "JJS"}

    def analysed(word: str, tag: str) -> tuple[str, str]:
        if tag in nouns:
            return "NOUN", singularize(word) if nouns[tag] else word
        return ("ADJ" if tag in adjectives else "X"), word

    def words(caption: str) -> frozenset[str]:
        found = (analysed(*pair) for pair in tag_text(caption))
        return frozenset(lemma.lower() for pos, lemma in found if pos != "X")

    def tag(tokens: list[str]) -> Tagged:
        return [analysed(*pair) for pair in parser.find_tags(tokens)]

    tag(["dog"])  # reads the lexicon
    return (lambda captions: [words(caption) for caption in captions]), tag


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    row = parser.parse_args().row
    if row is not None:
        print(json.dumps(measure(row)))
        return
    if not SHARED.is_dir():
        sys.exit(f"the reference data is missing: {SHARED}")
    table = {}
    for name in ROWS:
        command = (sys.executable, __file__, "--row", name)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        table[name] = json.loads(done.stdout)
    print(
        f"{'':<20}{'NOUN: P':>9}{'R':>7}{'F1':>7}{'ADJ: P':>9}{'R':>7}{'F1':>7}{'lemma':>8}"
        f"{'captions/s: first':>20}{'next':>9}{'MiB':>6}"
    )
    for name, found in table.items():
        print(
            f"{name:<20}{found['NOUN P']:>9.3f}{found['NOUN R']:>7.3f}{found['NOUN']:>7.3f}"
            f"{found['ADJ P']:>9.3f}{found['ADJ R']:>7.3f}{found['ADJ']:>7.3f}"
            f"{found['lemma']:>8.3f}{found['first']:>20,.0f}{found['captions/s']:>9,.0f}"
            f"{found['MiB']:>6.0f}"
        )
    limits = ", ".join(f"{name} {value:,}" for name, value in FLOORS.items())
    print(f"floors: F1 of {limits}")


if __name__ == "__main__":
    main()
