"""Every template of every program version: what its raw line says, and that the bytes pass finds it."""

from __future__ import annotations

import doctest
import importlib
import re

import pytest
from parsers.lines.sample_files import Sample, read_samples, summary

from gpufleet_cli.facts import Sign
from gpufleet_cli.parsers.lines import RECOGNISERS
from gpufleet_cli.parsers.lines.pasted import read

AT_NS = 10**18
SAMPLES = read_samples()
MODULES = {module.__name__.rpartition(".")[2]: module for module in RECOGNISERS}
ALL_PATTERNS = re.compile("|".join(p for module in RECOGNISERS for p in module.PATTERNS))


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_sample_says_what_is_written_under_it(sample: Sample) -> None:
    """A raw line of a known version gives exactly the listed facts, field by field."""
    facts = read(MODULES[sample.module].recognise, sample.text, at_ns=AT_NS)
    assert list(sample.expected) == [summary(fact) for fact in facts]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.expected], ids=str)
def test_the_bytes_pass_finds_every_line_that_says_something(sample: Sample) -> None:
    """A line that yields facts matches a pattern of its own module, or it would never be decoded."""
    first = sample.text.partition("\n")[0]
    own = re.compile("|".join(MODULES[sample.module].PATTERNS))
    assert own.search(first)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_no_module_reads_a_line_that_its_patterns_miss(sample: Sample) -> None:
    """What another module's sample says to a module, it says only through that module's patterns."""
    first = sample.text.partition("\n")[0]
    for module in RECOGNISERS:
        if read(module.recognise, sample.text):
            assert re.search("|".join(module.PATTERNS), first), module.__name__


def test_every_recogniser_has_samples_and_every_sample_file_a_recogniser() -> None:
    """A recogniser without a sample is not tested; a sample file without one is dead."""
    assert {sample.module for sample in SAMPLES} == set(MODULES)
    for name in MODULES:
        assert any(s.expected for s in SAMPLES if s.module == name), name


def test_every_sign_has_a_producer() -> None:
    """A Sign that no line produces is a promise that rules build on in vain."""
    produced = {fact.partition(" ")[0] for sample in SAMPLES for fact in sample.expected}
    assert [] == sorted(sign.value for sign in Sign if sign.value not in produced)


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"kernel_lines"}))
def test_the_docstring_shows_a_true_sample(name: str) -> None:
    """Each module's doctest runs, and there is one (kernel_lines is tested beside the kernel's log)."""
    module = importlib.import_module(f"gpufleet_cli.parsers.lines.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["effects", "groups", "nccl_prefix"])
def test_the_docstring_of_a_shared_reader_is_true(name: str) -> None:
    """The modules that several recognisers use have doctests that run."""
    module = importlib.import_module(f"gpufleet_cli.parsers.lines.{name}")
    assert doctest.testmod(module).failed == 0
