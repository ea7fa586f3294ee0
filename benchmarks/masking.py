"""Processor time of masking, a chunk of ordinary text, and how much of it is held back: decision 0045.

python -m benchmarks.masking
"""

import random
import string
import time
from pathlib import Path

from conductor_core.privacy.masking import Mask, MaskedText

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8") * 20
SIZES = (4, 20, 2000)
"""Characters a chunk: a token, a few, a server that coalesces."""


def keys(number: int) -> list[str]:
    draw = random.Random(number)
    return [f"sk-proj-{''.join(draw.choices(string.ascii_letters + string.digits, k=40))}" for _ in range(number)]


def measure(mask: Mask, text: str, size: int) -> tuple[float, float]:
    """Microseconds a chunk (median of five), and the share of chunks after which something is held back."""
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    times = []
    for _ in range(5):
        masked = MaskedText(mask)
        started = time.process_time()
        for chunk in chunks:
            masked.feed(chunk)
        times.append((time.process_time() - started) / len(chunks) * 1e6)
    masked, shown, read, late = MaskedText(mask), 0, 0, 0
    for chunk in chunks:
        read += len(chunk)
        shown += len(masked.feed(chunk))
        late += shown < read
    return sorted(times)[2], late / len(chunks)


def main() -> None:
    print("| keys | to make the mask, ms | characters a chunk | us a chunk | chunks with something held back |")
    print("|---|---|---|---|---|")
    for number in (0, 1, 7, 50):
        started = time.process_time()
        mask = Mask(keys(number))
        made_ms = (time.process_time() - started) * 1e3
        for size in SIZES:
            cost_us, late = measure(mask, TEXT, size)
            print(f"| {number} | {made_ms:.1f} | {size} | {cost_us:.2f} | {late:.1%} |")
    full = keys(1)[0] * 600
    cost_us, _ = measure(Mask(keys(1)), full, len(full))
    print(f"\nA text of nothing but keys: {cost_us / len(full):.2f} us a character.")


if __name__ == "__main__":
    main()
