"""Check names and first words of docstrings in the library, docstrings on changed lines, and subjects of new commits.

New is what `origin/main` lacks, or else what came after the last tag. Without git, or without either of them, only the
library is checked. `docs/contributing.md` gives the rules under "Words".
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Set as AbstractSet
from pathlib import Path

LIBRARY = "lastlight_state"
FOLDERS = ("tests", "docs", ".ci")
NO_VERBS = frozenset("what who whom whose whether those these this one some of it its how why when where which".split())
#: The docstring of a function of the library begins with none of these either.
NO_VERBS_OF_LIBRARY = NO_VERBS | set("the a an all as at before each every everything for from in like about".split())
NO_SUBJECTS = NO_VERBS | {"the", "a", "an", "tests"}
ENDS_LIKE_A_VERB = frozenset("bring embed exceed feed need proceed seed shed speed spring string succeed".split())
LONGEST_SUBJECT = 72
#: A function's name is none of these alone: pronouns, and participles that do not end in -ed or -ing.
NO_NAMES = frozenset(
    """one ones some those these that this it its they them all any each other others another both none nobody anybody
    something anything everything what who whom whose which mine ours theirs few many most more less much such same
    found held kept left made given taken said sent told known seen shown lost done gone written built bound begun
    chosen come drawn fallen felt got had laid led meant met paid sold spent stood stuck understood won wound sought
    caught brought bought thought taught hidden broken spoken stolen torn worn frozen forgotten grown thrown""".split()
)
#: Ordinary nouns in -ing, and names that callers of the library use.
NOUNS = frozenset("embedding finding heading listing mapping routing sealing".split())
NAMES_IN_USE = frozenset(
    """anchored changed containing driving due ended ignored lacking left placed qualified racing recovered running
    shared supported upcoming""".split()
)


def git(folder: Path, *words: str) -> str | None:
    """Return what a command of git prints, None where it fails or is missing."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def base_of(folder: Path) -> str | None:
    """Return the commit after which everything is new."""
    base = git(folder, "merge-base", "HEAD", "origin/main") or git(folder, "describe", "--tags", "--abbrev=0")
    return base.strip() if base else None


def changed(folder: Path, base: str) -> dict[str, set[int]]:
    """Return the numbers of the changed lines of each Python file, also of those that are not committed."""
    lines: dict[str, set[int]] = {}
    name = ""
    for line in (git(folder, "diff", "-M", "-U0", "--no-ext-diff", base, "--", *FOLDERS) or "").splitlines():
        if line.startswith("+++ "):
            name = line.removeprefix("+++ ").removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            lines.setdefault(name, set()).update(range(first, first + count))
    return {name: numbers for name, numbers in lines.items() if name.endswith(".py")}


def docstring_problems(
    source: str, lines: AbstractSet[int] | None, refused: AbstractSet[str] = NO_VERBS
) -> Iterator[tuple[int, str]]:
    """Yield the line and first word of each function's docstring, on these lines or all, that begins with no verb."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            line, word = node.body[0].lineno, re.match(r"[\w']*", text)
            if word and word[0].lower() in refused and (lines is None or line in lines):
                yield line, f"a docstring begins with {word[0]!r}, not with a verb, Return or True if"


def is_no_name(name: str) -> bool:
    """True if this name of a function is a participle or a pronoun alone."""
    word = name.strip("_")
    if "_" in word or word in NOUNS or word in ENDS_LIKE_A_VERB or name in NAMES_IN_USE:
        return False
    return word in NO_NAMES or word.endswith(("ed", "ing"))


def name_problems(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each function whose name is a participle or a pronoun alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_no_name(node.name):
            yield node.lineno, f"{node.name!r} is a participle or a pronoun: name the thing, or the act"


def subject_problem(subject: str) -> str | None:
    """Return what is wrong with the subject of a commit, None if nothing is."""
    if len(subject) > LONGEST_SUBJECT:
        return f"{len(subject)} characters, more than {LONGEST_SUBJECT}"
    first = subject.split(" ", 1)[0]
    word = first.lower()
    if first.endswith(":") or word in NO_SUBJECTS:
        return f"begins with {first!r}, not with an imperative verb"
    if word.endswith(("ing", "ed")) and word not in ENDS_LIKE_A_VERB:
        return f"begins with {first!r}, which is no imperative"
    return None


def problems(folder: Path) -> Iterator[str]:
    """Yield a line for each name, docstring and subject that breaks a rule."""
    for path in sorted((folder / LIBRARY).rglob("*.py")):
        name, source = path.relative_to(folder).as_posix(), path.read_text("utf-8")
        for line, problem in (*name_problems(source), *docstring_problems(source, None, NO_VERBS_OF_LIBRARY)):
            yield f"{name}:{line}: {problem}"
    if (base := base_of(folder)) is None:
        return
    for name, lines in changed(folder, base).items():
        if (folder / name).is_file():
            for line, problem in docstring_problems((folder / name).read_text("utf-8"), lines):
                yield f"{name}:{line}: {problem}"
    for line in (git(folder, "log", "--no-merges", "--format=%h %s", f"{base}..HEAD") or "").splitlines():
        commit, _, subject = line.partition(" ")
        if problem := subject_problem(subject):
            yield f"{commit}: {problem}: {subject}"


if __name__ == "__main__":
    found = list(problems(Path(__file__).resolve().parents[1]))
    sys.exit("\n".join(found) if found else 0)
