"""Makes the text that the course's model learns to write: the lectures, as they are now.

`.venv/bin/python tools/course_text.py` runs it, seldom. The package keeps the text instead of reading the
lectures, so that losses stay comparable when a sentence changes or a reader edits a cell.
"""

import gzip
from collections import Counter
from pathlib import Path

import jupytext

COURSE = Path(__file__).parents[1]
TEXT = COURSE / "fourranks/learner/course.txt.gz"
RARE = 40  # characters seen less often are left out: nobody could learn them


def main() -> None:
    text = "\n\n".join(
        cell.source
        for path in sorted(COURSE.glob("source/*/lecture.py"))
        for cell in jupytext.read(path).cells
    )
    seen = Counter(text)
    kept = "".join(character for character in text if seen[character] >= RARE)
    TEXT.write_bytes(gzip.compress(kept.encode(), mtime=0))
    print(f"{TEXT.relative_to(COURSE)}: {len(kept):,} characters, {len(set(kept))} different ones")


if __name__ == "__main__":
    main()
