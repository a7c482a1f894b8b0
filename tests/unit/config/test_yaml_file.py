"""Reading YAML that people write, and that others make up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.yaml_file import FILE_BYTES_MAX, Faults, parse_yaml, read_yaml
from orchestrator.errors import PlanError


def parse(text):
    return parse_yaml(text, label="f.yaml")


def test_places_are_lines_and_columns_of_characters():
    file = parse("é: [x, {ü: y}]\nb:\n  - c: d\n")
    assert file.places[("é",)] == (1, 1)
    assert file.places[("é", 1, "ü")] == (1, 9)
    assert file.describe(("b", 0, "c", "none", 3)) == ((3, 5), "f.yaml:3:5: b[0].c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# only a comment\n", "f.yaml:1:1: must be keys and values"),
        ("- a\n- b\n", "f.yaml:1:1: must be keys and values"),
        ("a:\n\t- b\n", "f.yaml:2:1: isn't YAML: .*cannot start any token"),
        ("a: \x01b\n", "isn't YAML: "),
        ("a: *nobody\n", "f.yaml:1:4: isn't YAML: found undefined alias 'nobody'"),
        ("--- {a: b}\n--- {a: b}\n", "f.yaml:2:1: isn't YAML: .* found another document"),
        ("a: &a [*a]\n", "nested more than 32 levels"),
        ("a: " + "[" * 100_000, "nested more than 32 levels|maximum nesting depth"),
        ("a: " + "[" * 50 + "]" * 50, "f.yaml:1:36: is nested more than 32 levels"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line_with_its_place(text, message):
    with pytest.raises(PlanError, match=message) as raised:
        parse(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb:\na: 2\n", "f.yaml:3:1: a: is given twice, first in line 1"),
        ("b: 1\na:\n", "f.yaml:2:3: a: has no value"),
        ("a: [x, ~]\n", "f.yaml:1:8: a[1]: has no value"),
        (
            "a: !!python/object:os.system x\n",
            "f.yaml:1:4: a: tags such as tag:yaml.org,2002:python/object:os.system",
        ),
        ("? [x]\n: y\na: b\n", "f.yaml:1:3: a key must be a single word"),
        ("x: &x {a: b}\ny:\n  <<: *x\n", "f.yaml:3:3: y: merge keys (<<) aren't supported"),
    ],
)
def test_faults_of_form_are_told_with_all_others(text, line):
    with pytest.raises(PlanError) as raised:
        Faults(parse(text)).raise_if_any()
    assert any(fault.startswith(line) for fault in raised.value.faults)


def test_alias_stands_for_what_it_names():
    assert parse("a: &x [1, 2]\nb: *x\nc: &y word\nd: *y\n").value["b"] == ["1", "2"]


def test_aliases_that_stand_for_millions_of_values_are_refused_before_they_fill_memory():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(PlanError, match=r"f.yaml:1:\d+: the file holds more than 100000 values"):
        parse("\n".join(lines))
    keys = "a0: &a0 {x: 1, y: 2}\n" + "\n".join(
        f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}" for n in range(1, 30)
    )
    with pytest.raises(PlanError, match="more than 100000 values"):
        parse(keys)


def test_file_that_is_missing_huge_or_no_text_is_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(PlanError, match="can't be read: "):
            read_yaml(path)
    path = tmp_path / "p.yaml"
    path.write_bytes(b"# " + b"x" * FILE_BYTES_MAX)
    with pytest.raises(PlanError, match="larger than 1000000 bytes"):
        read_yaml(path)
    path.write_bytes(b"a: b\nc: \xff\n")
    with pytest.raises(PlanError, match=r"p.yaml: isn't UTF-8"):
        read_yaml(path)
    path.write_bytes(b"\xef\xbb\xbfa: b\r\nc: d\r\n")
    assert read_yaml(path).value == {"a": "b", "c": "d"}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_plan_error(text):
    try:
        assert isinstance(parse(text).value, dict)
    except PlanError:
        pass
