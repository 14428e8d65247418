"""The verbs of the command with their options and arguments, as --help lists them."""
import dataclasses
import re

from command_case import berth


@dataclasses.dataclass
class Word:
    names: list  # "-n" and "--devices", or the name of an argument
    value: str  # its placeholder; empty: a flag
    about: str


@dataclasses.dataclass
class Verb:
    words: list  # "token", "add"
    below: list
    options: list
    arguments: list

    @property
    def name(self):
        return " ".join(["berth", *self.words])


def section(text, heading):
    found = re.search(rf"(?m)^{heading}:\n((?:  .*\n|\n(?=  ))+)", text)
    return found[1] if found else ""


def rows(text):
    """A name, the text beside it, and its description, which begins in a later column or line."""
    for row in re.split(r"\n(?=  \S)", text.rstrip()):
        name, more, about = re.fullmatch(r"  (\S+)((?: \S+)*)(?:\s+(.*))?", row, re.S).groups()
        yield name, more.strip(), " ".join((about or "").split())


def placeholder(text):
    """The placeholder in "N=1", "DEVICE=UNITS,..." and "Excludes: --fleet"."""
    first = text.split(" ")[0]
    return "" if first.startswith(("Excludes:", "(Env:")) else re.sub(r"=(?![A-Z]).*", "", first)


def walk(words=()):
    """The verb of these words, and all that are below it."""
    text = berth(*words, "--help").stdout
    below = [name for name, _, _ in rows(section(text, "Subcommands"))] if "Subcommands:" in text else []
    options = [Word(name.split(","), placeholder(more), about) for name, more, about in rows(section(text, "Options"))]
    arguments = [Word([name], more, about) for name, more, about in rows(section(text, "Positionals"))] if "Positionals:" in text else []
    yield Verb(list(words), below, options, arguments)
    for name in below:
        yield from walk((*words, name))
