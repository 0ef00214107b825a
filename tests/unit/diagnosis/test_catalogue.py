"""The catalogue as data: complete, its patterns right and quick, its samples read as meant."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from diagnosis.small_catalogue import TEXTS

from pyinfra_gpu.diagnosis.bundled import for_hosts
from pyinfra_gpu.diagnosis.catalogue import _FileCase, catalogue, own_texts, read_catalogue
from pyinfra_gpu.diagnosis.matcher import explain
from pyinfra_gpu.on_host.diagnosis.entries import LAYERS, Entry, carried, packed, unpacked
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.matcher import diagnose
from pyinfra_gpu.on_host.diagnosis.patterns import AFTER, BEFORE, Pattern, Text, asked_about
from pyinfra_gpu.on_host.diagnosis.steps import Step
from pyinfra_gpu.stacks import StacksError

KNOWN = catalogue()
HANDED_OVER = {"DRV": 24, "CUDA": 25, "LIB": 12, "STORE": 11, "NCCL": 18, "CMP": 10, "HOST": 12}
REPORTED = ("root", "warn", "evidence", "expected")
ONE_WINDOW = 0.02  # seconds that one pattern may take in one window, the longest there is

entries = pytest.mark.parametrize("entry", KNOWN.entries, ids=lambda entry: entry.id)


def test_every_failure_handed_over_is_in_it_and_many_more() -> None:
    ids = {f"{name}-{n:02}" for name, count in HANDED_OVER.items() for n in range(1, count + 1)}
    assert ids <= set(KNOWN.by_id)
    assert len(KNOWN.entries) >= 150
    assert {entry.layer for entry in KNOWN.entries} == set(LAYERS)


def test_patterns_and_samples_of_the_packages_own_data_fit_each_other() -> None:
    assert read_catalogue(own_texts()).entries == KNOWN.entries


@entries
def test_each_sample_is_read_as_its_own_entry(entry: Entry) -> None:
    for sample in entry.samples:
        found = explain(sample)
        named = [finding.id for finding in found.findings]
        if entry.kind in REPORTED:
            assert named == [entry.id], sample
        else:
            assert not [finding for finding in found.findings if finding.kind == "root"], sample
            assert entry.id in (*named, *found.suppressed), sample


@entries
def test_each_sample_is_read_as_its_own_entry_in_the_ways_logs_come(entry: Entry) -> None:
    for sample in entry.samples:
        for prefix in ("[rank1]: ", "2026-11-21T12:33:44.123456789Z ", "trainer-1  | "):
            log = "".join(f"{prefix}\x1b[31m{line}\x1b[0m\r\n" for line in sample.splitlines())
            found = explain(log)
            assert entry.id in ([f.id for f in found.findings] or found.suppressed), (
                prefix,
                sample,
            )


def carries(sample: str, entry: Entry, values: frozenset[str] | None) -> bool:
    """Tell whether the sample has one of these values where the entry's cases look for one."""
    groups = [found.groupdict() for each in entry.patterns for found in each.regex.finditer(sample)]
    told = {each.get(entry.case_group or "") for each in groups} - {None}
    return bool(told & values or (told and "*" in values)) if values else not told


def has(sample: str, entry: Entry, names: frozenset[str]) -> bool:
    """Tell whether the sample has something in all these groups."""
    found = [each.groupdict() for p in entry.patterns for each in p.regex.finditer(sample)]
    return any(all(groups.get(name) for name in names) for groups in found)


@pytest.mark.parametrize(
    "entry", [each for each in KNOWN.entries if any(c.seen or c.differs for c in each.cases)]
)
def test_another_line_of_the_log_decides_which_case_it_is(entry: Entry) -> None:
    for case in entry.cases:
        if not isinstance(case, _FileCase) or not (case.seen or case.differs):
            continue
        about = asked_about(case.seen) if case.seen else frozenset()
        fitting = (
            each
            for each in entry.samples
            if (has(each, entry, about) if about else carries(each, entry, case.values))
        )
        message = next(fitting, entry.samples[0])
        if entry.only_decided:  # its samples have a line that decides
            found = (each.regex.search(message) for each in entry.patterns)
            message = next(each[0] for each in found if each)
        for log in (f"{message}\n$ typed\n{case.seen_in}", f"{case.seen_in}\n{message}"):
            found = next(each for each in explain(log).findings if each.id == entry.id)
            for part in re.split("<[a-z_]+>", case.cause):
                assert part in found.cause, log
            assert found.decided_by == "" or found.decided_by in case.seen_in


def test_each_of_several_lines_decides() -> None:
    lists = "seen: ['compat on the path', 'compat in the cache']"
    lines = "seen_in: ['the compat on the path', 'a compat in the cache']"
    old = "{facts: {compat_on_path: yes}, "
    assert old in TEXTS["cuda"]
    known = read_catalogue({**TEXTS, "cuda": TEXTS["cuda"].replace(old, f"{{{lists}, {lines}, ")})
    assert [case.cause for case in known.by_id["CUDA-01"].cases][:2] == [
        "compat is on the path"
    ] * 2
    for line, cause in (
        ("the compat on the path", "compat is on the path"),
        ("a compat in the cache", "compat is on the path"),
        ("no such line", "libcuda does not fit"),
    ):
        log = f"Error 803: system has unsupported display driver\n{line}\n"
        assert diagnose([Source(log)], known).findings[0].cause == cause


@pytest.mark.parametrize(
    ("seen", "decides", "not_yet"),
    [
        (
            r"(?P<more>\d{1,9}) tokens in (?P<less>\d{1,9})",
            "32001 tokens in 32000",
            "9 tokens in 32",
        ),
        (r"(?P<more>\d{1,9}) GiB less (?P<half>\d{1,9})", "80 GiB less 39", "80 GiB less 40"),
        (r"(?P<more>\d{1,9}) ranks, GPU (?P<last>\d)", "3 ranks, GPU 1", "2 ranks, GPU 1"),
        (
            r"(?P<more>\d) ranks, GPUs (?P<listed>[\d,]{1,9})",
            "3 ranks, GPUs 0,1",
            "2 ranks, GPUs 4,7",
        ),
    ],
)
def test_a_line_may_decide_by_its_numbers(seen: str, decides: str, not_yet: str) -> None:
    case = f"seen: '{seen}', seen_in: '{decides}'"
    assert _cause_with(case, decides) == "compat is on the path"
    assert _cause_with(case, not_yet) == "libcuda does not fit"
    assert _cause_with(case, f"{not_yet}\n{decides}") == "compat is on the path"


@pytest.mark.parametrize(
    ("lines", "decides"),
    [
        ("started 4 ranks\n[rank0]: x\nthe last GPU is 1", True),
        ("started 2 ranks\nthe last GPU is 1", False),
        ("started 4 ranks", False),
        ("the last GPU is 1", False),
    ],
)
def test_two_lines_may_have_to_be_there_together(lines: str, decides: bool) -> None:
    both = (
        r"seen: 'started (?P<more>\d) ranks', also: 'last GPU is (?P<last>\d)',"
        r" seen_in: 'started 4 ranks, the last GPU is 1'"
    )
    assert (_cause_with(both, lines) == "compat is on the path") is decides


@pytest.mark.parametrize(("lines", "decides"), [("eth1 is down", True), ("eth2 is down", False)])
def test_two_lines_may_have_to_be_about_the_same(lines: str, decides: bool) -> None:
    both = (
        r"seen: '(?P<same>\w{1,9}) is down', also: 'asked for (?P<same>\w{1,9})',"
        r" seen_in: 'asked for eth0; eth0 is down'"
    )
    cause = _cause_with(both, f"asked for eth1\n{lines}")
    assert (cause == "compat is on the path") is decides


NOT_LISTED = r"""
CUDA-11:
  kind: root
  patterns: ['Keys wanted: (?P<key>\w{1,9})']
  samples: ["Keys wanted: label\nthe keys are: text"]
  cause: a key is missing
  fix: ["add it"]
  source: made up
  only_decided: yes
  cases:
    - seen: 'keys are: (?![\w ]{0,80}<<key>>)(?P<has>\w{1,9})'
      seen_in: 'the keys are: text'
      kind: root
      cause: the data have <has>
      fix: [rename it]
"""


@pytest.mark.parametrize(
    ("lines", "causes"),
    [
        ("Keys wanted: label\nthe keys are: text id", ["the data have text"]),
        ("Keys wanted: label\nthe keys are: text label", []),
        ("Keys wanted: label", []),
    ],
)
def test_a_line_may_be_about_what_the_message_names(lines: str, causes: list[str]) -> None:
    known = read_catalogue({**TEXTS, "cuda": TEXTS["cuda"] + NOT_LISTED})
    assert unpacked(packed(known)).by_id["CUDA-11"].only_decided
    assert [each.cause for each in diagnose([Source(lines)], known).findings] == causes
    for old, new, said in (
        ("<<key>>", "<<value>>", "asks for a group that no pattern has"),
        ("the keys are: text'", "the keys are: label'", "does not match its seen_in"),
    ):
        with pytest.raises(StacksError, match=said):
            read_catalogue({**TEXTS, "cuda": TEXTS["cuda"] + NOT_LISTED.replace(old, new)})


def _cause_with(case: str, lines: str) -> str:
    old = "{facts: {compat_on_path: yes}, "
    known = read_catalogue({**TEXTS, "cuda": TEXTS["cuda"].replace(old, f"{{{case}, ")})
    assert unpacked(packed(known)).by_id["CUDA-01"].cases[0].also == (
        known.by_id["CUDA-01"].cases[0].also
    )
    log = f"Error 803: system has unsupported display driver\n{lines}\n"
    return diagnose([Source(log)], known).findings[0].cause


def test_two_lines_that_differ_decide_and_two_alike_do_not() -> None:
    late = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
    for other, told in (("job-6", True), ("job-7", False)):
        log = f"  run_id           : job-7\n{late}\n  run_id           : {other}\n"
        found = explain(log).findings[0]
        assert ("different rendezvous ids, job-7 and job-6" in found.cause) is told
        assert found.decided_by == ("run_id           : job-6" if told else "")


def test_only_lines_about_the_same_are_compared() -> None:
    watchdog = (
        "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType="
    )
    for number, told in ((8, True), (9, False)):
        log = f"{watchdog.format(0, 8)}ALLREDUCE, \n{watchdog.format(1, number)}BROADCAST, \n"
        found = explain(log).findings[0]
        assert ("different ones (ALLREDUCE and BROADCAST)" in found.cause) is told


@entries
def test_a_fix_is_told_not_pointed_at(entry: Entry) -> None:
    for text in (
        entry.cause,
        *(text for step in steps(entry) for text in (step.in_shell, step.run)),
    ):
        assert not re.search(rf"\b(?:{'|'.join(LAYERS.values())})-\d\d", text), text
        assert text.strip() == text and "\n" not in text
        assert text.count("`") % 2 == 0, text


def test_no_fix_is_what_is_known_to_be_wrong() -> None:
    for entry in KNOWN.entries:
        for step in (text for each in steps(entry) for text in each.forms):
            assert not re.search(
                r"(?<!_STORE=1 )USE_LIBUV=0 torchrun|ln -s\S* \S*(?:compat|stubs)/", step
            ), step
            assert "kill -9 -1" not in step
            assert not re.search(r"export LD_LIBRARY_PATH=\S*compat", step), step


OF_A_BUILD = {
    *("PATH", "CC", "CXX", "CFLAGS", "CPATH", "CUDACXX", "CUDAHOSTCXX", "CUDA_HOME", "MAX_JOBS"),
    *("LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "TORCH_CUDA_ARCH_LIST", "DS_BUILD_OPS"),
    *("FLASH_ATTENTION_FORCE_BUILD", "USE_CUDNN", "USE_DISTRIBUTED", "USE_LIBUV"),
    *("USE_SYSTEM_LIBS", "USE_TENSORPIPE"),
}
"""Variables of a build, which is started from a shell in both situations."""
OF_A_SHELL = {"PATH", "DOCKER_HOST", "NVIDIA_DRIVER_CAPABILITIES"}
"""Those of a shell or a container itself."""


@entries
def test_what_a_run_is_told_is_not_typed_in_a_shell_that_starts_it(entry: Entry) -> None:
    """It was for whoever types torchrun in a shell: write {NAME=value}, or the step in two forms.

    A text without braces is both forms, so one for a shell alone is found here as well.
    """
    for step in steps(entry):
        assert "CUDA_VISIBLE_DEVICES" not in "".join(re.findall(r"\{[^}]*=[^}]*\}", step.run)), step
        for code in re.findall("`([^`]*)`", step.run):
            assert not re.search(r"\btorchrun\b|\bunset [A-Z]|\benv \||--log-dir", code), code
            looked_at = re.match(r'echo "?\[?\$(\w+)', code)
            assert not looked_at or looked_at[1] in OF_A_SHELL, code
            if code.startswith("export ") or re.fullmatch(r"(?:[A-Z_0-9]{2,}=\S+ ?)+", code):
                names = {*re.findall(r"(?:^| )(\w+)=", code.removeprefix("export "))}
                assert names <= OF_A_BUILD | OF_A_SHELL, code


def steps(entry: Entry) -> list[Step]:
    """Return the steps of an entry and of its cases."""
    return [step for it in (entry, *entry.cases) for step in it.fix]


def asked(entry: Entry) -> list[Pattern]:
    """Return what the entry's cases ask the rest of a log for."""
    return [each for case in entry.cases for each in (case.seen, case.also, case.differs) if each]


def attacks(entry: Entry) -> Iterator[str]:
    """Texts that nearly match each pattern, in the ways that make a search try again and again."""
    for pattern in (*entry.patterns, *asked(entry)):
        width = BEFORE + AFTER
        literals = re.findall(r"[A-Za-z][A-Za-z ]{2,}", pattern.source) or [pattern.anchor]
        for filler in (
            "0",
            "a",
            " ",
            ".",
            "/",
            "-",
            ":",
            "'",
            "1.",
            "a.",
            "a/",
            "0 ",
            "a-",
            *literals,
        ):
            text = (filler * width)[:BEFORE] + pattern.anchor + (filler * width)[:AFTER]
            yield text
            yield text.replace("\n", " ") + "\x01"
        for sample in entry.samples:
            # The sample without its end, over and over: every start of a match comes to nothing.
            yield (sample[:-1] * width)[: BEFORE + AFTER]


@entries
def test_no_pattern_is_slow_on_a_text_made_to_slow_it(entry: Entry) -> None:
    texts = [Text(attack).lines for attack in attacks(entry)]
    slow = [
        (each, text) for text in texts for each in entry.patterns if taken(each, text) > ONE_WINDOW
    ]
    assert all(min(taken(each, text) for _ in range(3)) < ONE_WINDOW for each, text in slow)


def taken(pattern: Pattern, text: str) -> float:
    """The seconds of a processor that a search takes; more where others keep it busy."""
    start = time.process_time()
    pattern.regex.search(text)
    return time.process_time() - start


def wrong(layer: str, old: str, new: str) -> str:
    """The sentence that refuses the small catalogue with this change."""
    assert old in TEXTS[layer]
    with pytest.raises(StacksError) as caught:
        read_catalogue({**TEXTS, layer: TEXTS[layer].replace(old, new, 1)})
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"catalogue/{layer}.yaml")
    return sentence


@pytest.mark.parametrize(
    ("layer", "old", "new", "said"),
    [
        ("cuda", "CUDA-01:", "STORE-77:", "an id such as CUDA-01"),
        ("cuda", "CUDA-02:", "CUDA-01:", "given twice"),
        ("cuda", "kind: expected", "kind: fatal", "must be one of root"),
        ("cuda", "\n  cause: none is seen", "", "CUDA-09.cause is wrong: it is missing"),
        ("cuda", "cause: none is seen", "reason: none is seen", "is missing"),
        ("cuda", "source: made up", "source: made up\n  colour: red", "is not a field"),
        ("cuda", 'fix: ["halve the batch"]', "fix: []", "at least one"),
        ("cuda", '["use NVFP4"]', "use it", "must be a list"),
        (
            "cuda",
            '"use NVFP4"',
            "{shell: use it}",
            "at least one step in a shell, and one for a run",
        ),
        ("cuda", '"use NVFP4"', "{shell: use it, runs: x}", "a mapping of `shell` and `run`"),
        ("cuda", '"use NVFP4"', '{shell: "", run: x}', "is left out"),
        ("cuda", '"use NVFP4"', '"see {rnu}"', "without {rnu}: places are file, folder"),
        ("cuda", '"use NVFP4"', '{shell: a, run: "no <b>"}', "names <b>"),
        ("cuda", '"use NVFP4"', '"{export A=$HOME}"', "without {export A=$HOME}"),
        ("cuda", "No CUDA GPUs are available']", "No GPU was here']", "none of the patterns"),
        ("cuda", "['unsupported", "['never printed', 'unsupported", "none of the samples"),
        ("cuda", "no room for <size>", "no room for <much>", "names <much>"),
        ("cuda", "[CUDA-09]", "[CUDA-90]", "CUDA-90"),
        ("cuda", "compat_on_path: yes", "compat_on_path: maybe", "yes or no"),
        ("cuda", "compat_on_path: yes", "compat: yes", "is not a field"),
        ("cuda", "compat_on_path: yes", 'shm_mib: "64"', "in MiB"),
        ("cuda", "{facts: {compat_on_path: yes}, ", "{", "values, facts, seen or differs"),
        (
            "cuda",
            "{facts: {compat_on_path: yes}, ",
            "{seen: ['a first line', 'a second one'], seen_in: ['a first line'], ",
            "must be a list of 2 texts, as `seen` is",
        ),
        (
            "cuda",
            "{facts: {compat_on_path: yes}, ",
            "{differs: 'run_id : (\\d)', ",
            "must have the group `one`",
        ),
        (
            "cuda",
            "{facts: {compat_on_path: yes}, ",
            "{also: 'a line', facts: {compat_on_path: yes}, ",
            "must stand beside `seen`",
        ),
        (
            "cuda",
            "{facts: {compat_on_path: yes}, ",
            "{seen: 'run_id : (?P<more>\\d)', seen_in: 'run_id : 1', ",
            "must compare the group `more` with `less`, `half`, `last` or `listed`",
        ),
        ("driver", "case_group: xid", "case_group: number", "group that the cases have values of"),
        ("driver", "  case_group: xid\n", "", "group that the cases have values of"),
        ("store", "weak: yes", "weak: sometimes", "yes or no"),
        ("store", "patterns: ['Address already in use']", "patterns: ['in .* use']", "bound"),
        (
            "nccl",
            "source: made up\nNCCL-03",
            "source: made up\n  explains: [NCCL-01]\nNCCL-03",
            "which explains it",
        ),
    ],
)
def test_wrong_data_is_refused_in_one_sentence(layer: str, old: str, new: str, said: str) -> None:
    assert said in wrong(layer, old, new)


def test_what_explains_a_layer_explains_its_entries_and_what_explains_those_does_not() -> None:
    known = read_catalogue(TEXTS)
    assert known.explains(("DRV-01", None), "CUDA-09")
    assert not known.explains(("DRV-01", None), "NCCL-02")
    assert known.explains(("CUDA-01", None), "CUDA-09")
    assert not known.explains(("CUDA-09", None), "CUDA-01")


def test_hosts_read_the_same_catalogue() -> None:
    """All that decides a reading travels; what only people and tests read stays here."""
    here, there = catalogue(), unpacked(for_hosts())
    assert packed(there) == for_hosts()
    for one, other in zip(here.entries, there.entries, strict=True):
        told = ("id", "kind", "patterns", "cause", "fix", "clause", "remedy", "weak", "passing")
        flags = ("lends", "only_decided", "precedes", "awaited", "case_group", "explains")
        assert all(getattr(one, name) == getattr(other, name) for name in (*told, *flags))
        for case, same in zip(one.cases, other.cases, strict=True):
            assert {**vars(case), "facts": {*case.facts}} == {
                **vars(same),
                "facts": {*same.facts},
                "seen_in": vars(case)["seen_in"],  # stays here, as samples do
            }
        assert not other.samples


def test_a_tree_without_a_packed_catalogue_explains_nothing() -> None:
    assert carried().entries == ()


def test_only_causes_are_said_to_pass_by_themselves() -> None:
    passing = {entry.id: entry.kind for entry in KNOWN.entries if entry.passing}
    assert "HOST-52" in passing
    assert set(passing.values()) == {"root"}
