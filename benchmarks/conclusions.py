"""How often the large answer of a run is one that the text itself marks: precision and recall on labelled answers.

    python -m benchmarks.conclusions            both halves of tests/support/answers.jsonl
    python -m benchmarks.conclusions --wrong    and every text of the developing half that is read wrongly

``given``: texts to which the rule gives a value. ``precision``: the share of them that is right. ``recall``: the share
of the marked texts whose value is given. Exits with 1 if the kept half misses a bar.
"""

import argparse

from conductor_core.analysis.conclusion import conclude
from tests.support.answers import Half, labelled_answers, of_second_reader, score

PRECISION, RECALL = 0.98, 0.8
HALVES: tuple[Half, ...] = ("developing", "kept")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", action="store_true", help="print the texts of the developing half that are wrong")
    wrong = parser.parse_args().wrong
    answers = labelled_answers()
    for half in HALVES:
        of_half = [each for each in answers if each.half == half]
        found = score(of_half)
        tempting = sum(each.tempting for each in of_half)
        print(
            f"{half:<10} {len(of_half)} texts, {found.marked} marked, {tempting} tempting: given {found.given}, "
            f"right {found.right}, precision {found.precision:.3f}, recall {found.recall:.3f}"
        )
        theirs = score(of_second_reader(of_half))
        print(f"{'':<10} by the second reader's labels precision {theirs.precision:.3f}, recall {theirs.recall:.3f}")
        if wrong and half == "developing":
            for each in found.wrong:
                said = conclude(each.text, each.prompt)
                print(f"\n{each.id} want {each.want} got {said.kind} {said.text!r}\n{each.text.strip()[-500:]}")
    return 0 if found.precision >= PRECISION and found.recall >= RECALL else 1


if __name__ == "__main__":
    raise SystemExit(main())
