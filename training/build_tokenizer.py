"""Builds tokenizer.json, a byte-level BPE made for copying: 1,536 tokens.

Merges stay inside runs of letters, digits stay single, punctuation merges only into the glue of
JSON (`{"`, `":`, `",`, `"}`), and a space is a token of its own but for frequent words of the
phrasings and answers. So an argument has the same ids after a space, a quote or a slash, and
copying it is one induction step a token.

    python -m training.build_tokenizer [OUT.json]

Weights belong to their tokenizer: after a rebuild every stage has to run again.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.data.conversations import Conversations
from training.data.phrasings import CLOSINGS, OPENINGS, request_kinds, topics
from training.data.rendering import segments
from training.tokens import SPECIAL_TOKENS, TOKENIZER

VOCABULARY = 1536
WORDS_WITH_SPACE = 220
SAMPLE = 25_000
SEED = 123
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_GLUE = ['{ "', '" :', '" ,', '" }', "} }", "/ /", ": //", 'Ġ "', 'Ġ {"', "Ġ `", "Ġ '"]
# the runs that llama.cpp's deepseek-coder pre-tokenizer makes on this text
_RUNS = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\p{N}")
_ANSWER_WORDS = (
    "denied user failed It is contains Done I wrote says printed command finished without output"
    " answer was found nothing about Saved Here the plan No tools are enabled so cannot do that and"
)


def byte_alphabet() -> list[str]:
    """Returns the 256 characters that stand for bytes in GPT-2's vocabulary, in byte order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]


def build(target: Path) -> None:
    """Writes the tokenizer learnt from the generator's own conversations."""
    source = Conversations(SEED)
    texts = ["".join(part for part, _ in segments(source.draw())) for _ in range(SAMPLE)]
    room = VOCABULARY - len(SPECIAL_TOKENS) - 256 - len(_GLUE) - WORDS_WITH_SPACE
    letter_merges = _letter_merges(texts, room)
    merges = _GLUE + letter_merges + _space_merges(texts, letter_merges)
    vocabulary = [*SPECIAL_TOKENS, *byte_alphabet()]
    for merge in merges:
        token = merge.replace(" ", "")
        if token not in vocabulary:
            vocabulary.append(token)
    while len(vocabulary) < VOCABULARY:
        vocabulary.append(f"<|unused{len(vocabulary)}|>")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary)},
            merges=[tuple(merge.split(" ")) for merge in merges],
        )
    )
    runs = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _RUNS]
    plain_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*runs, plain_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
    )
    tokenizer.save(str(target))
    mean = sum(len(tokenizer.encode(text).ids) for text in texts) / len(texts)
    print(f"{target}: {len(merges)} merges, {mean:.0f} tokens a conversation")


def _letter_merges(texts: list[str], count: int) -> list[str]:
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Split(Regex("[^A-Za-z]+"), "removed")
    trainer = trainers.BpeTrainer(
        vocab_size=count + len(_LETTERS), initial_alphabet=list(_LETTERS), show_progress=False
    )
    learner.train_from_iterator((re.sub(r"<\|?\w+\|?>", " ", text) for text in texts), trainer)
    merges = json.loads(learner.to_str())["model"]["merges"]
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in merges][:count]


def _space_merges(texts: list[str], letter_merges: list[str]) -> list[str]:
    """Joins the space to frequent whole words that phrasings and answers use."""
    whole = {merge.replace(" ", "") for merge in letter_merges} | {"a", "I"}
    after_space = re.compile(r"(?<= )[A-Za-z]+(?![A-Za-z])")
    counts = Counter(word for text in texts for word in after_space.findall(text) if word in whole)
    phrasings = [text for kind in request_kinds().values() for text in kind.known]
    small_talk = [text for topic in topics() for text in (*topic.known, topic.answer)]
    said = " ".join([*phrasings, *small_talk, *OPENINGS, *CLOSINGS, _ANSWER_WORDS])
    allowed = set(re.findall(r"[A-Za-z]+", said))
    return ["Ġ " + word for word, _ in counts.most_common() if word in allowed][:WORDS_WITH_SPACE]


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else TOKENIZER)
