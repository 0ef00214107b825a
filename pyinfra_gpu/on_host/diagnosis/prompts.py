"""Prompts of the shells and Pythons that people type in, made alike.

What a command was answered is looked for behind a plain prompt, `$ ` or `user@host:~$ `; prompts of
other forms are read as if they were that.
"""

from __future__ import annotations

import re

_ENVIRONMENT = r"\([\w. -]{1,40}\) "
_FOLDER = r"[~/][\w./~+-]{0,80}"
_BRANCH = r"(?: (?:on |git:)?\(?[\w./-]{1,40}\)?(?: ?[\u2717\u2713\u2718*!+?]{1,3})?)?"
_MARK = r"[\u276f\u276d\u00bb\u03bb\u25b6\u27a4]"  # those of pure, starship, grml, agnoster, fish

# A prompt stands alone on its line where nothing more was typed.
_SHELL = re.compile(
    rf"(?P<environment>{_ENVIRONMENT})?(?:{_ENVIRONMENT})?(?:"
    # a mark, mostly behind folder and branch
    rf"(?:(?:[\w.@-]{{1,80}} )?{_FOLDER}{_BRANCH} )?{_MARK}{{1,3}}"
    # oh-my-zsh: "➜  proj git:(main) ✗ "
    r"|\u279c {1,2}[\w.~/+-]{1,80}(?: git:\([\w./-]{1,60}\)(?: [\u2717\u2713])?)?"
    # grml: "»host ~»% "
    rf"|{_MARK} ?[\w.-]{{1,64}} {_FOLDER} ?{_MARK} ?%?"
    # the second of two lines: "└─$ "
    rf"|[\u2514\u2570][\u2500\u2574\u257c]{{1,3}} ?(?:[$#%]|{_MARK})"
    # zsh with the folder alone, SUSE, fish
    rf"|~[\w./+-]{{0,80}} [%$#]|[a-z][\w.-]{{0,62}}:{_FOLDER} [#$%]"
    rf"|[\w.-]{{1,40}}@[\w.-]{{1,64}} {_FOLDER}(?: \([\w./|-]{{1,40}}\))?>"
    # a shell that nobody configured
    r"|(?:ba|da|z|k)?sh-\d{1,2}\.\d{1,2}[$#]"
    r")(?: {1,3}|$)"
)
# "┌──(kali㉿kali)-[~]", "╭─user@host ~/proj"
_FIRST_OF_TWO = re.compile(r"[\u250c\u256d]\u2500{1,3} ?[(\[]?[\w.-]{1,40}[@\u327f]\S{1,64}")
_CLOCK = re.compile(
    r"\[?\d\d:\d\d(?: [AP]M)?\]? "
    rf"(?=(?:{_ENVIRONMENT})?\[?[\w.-]{{1,40}}@[^$#%\n]{{1,140}}[$#%](?: |$))"
)
_PYTHON = re.compile(r"In \[\d{1,4}\]: ")
_ANSWER = re.compile(r"Out\[\d{1,4}\]: ")


def alike(line: str) -> str:
    """Return the line with a plain prompt in place of one of another form."""
    if found := _CLOCK.match(line):
        return line[found.end() :]
    if found := _SHELL.match(line):
        return f"{found['environment'] or ''}$ {line[found.end() :]}"
    if _FIRST_OF_TWO.match(line):
        return "$"
    if found := _PYTHON.match(line):
        return f">>> {line[found.end() :]}"
    found = _ANSWER.match(line)
    return line[found.end() :] if found else line
