"""Comparing explorer pages: by the attention that they give."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest

from attnviz.output import diff_page
from attnviz.output.diff import compare
from tests.explorer.pages import attention_of_factors, blocks, facts, unpack


def changed(page, target, **new):
    """The page with other blocks of data."""
    text = page.read_text(encoding="utf-8")
    for name, content in new.items():
        pattern = rf'(id="{name.replace("_", "-")}">).*?(</script>)'
        text, count = re.subn(pattern, lambda m, c=content: m[1] + c + m[2], text)
        assert count == 1, name
    target.write_text(text, encoding="utf-8")
    return target


def rotated(page, layer, by):
    """A layer's block with its first two columns of queries and keys exchanged, keys times ``by``.

    The attention is the same where ``by`` is 1.
    """
    data = base64.b64decode(blocks(page)[f"layer-{layer}"])
    known = facts(page)
    tokens = 1 + known["grid"][0] * known["grid"][1]
    factors = unpack(data, (known["ranks"][layer], known["heads"], tokens), 1.0)
    order = [1, 0, *range(2, known["ranks"][layer])]
    values = np.stack([factors.query[order], factors.key[order]]).astype(np.int16)
    values[1] = np.rint(values[1] * by)
    folded = ((values << 1) ^ (values >> 15)).view(np.uint16)
    planes = np.stack([folded & 255, folded >> 8]).astype(np.uint8)
    return base64.b64encode(zlib.compress(planes.tobytes())).decode()


def test_the_reader_gives_the_attention_of_the_page(demo_page):
    known, data = facts(demo_page), blocks(demo_page)
    shape = (known["ranks"][2], known["heads"], 1 + 12 * 18)
    factors = unpack(base64.b64decode(data["layer-2"]), shape, known["steps"][2])
    ours = np.exp(np.stack(list(diff_page._log_attention(known, data, 2))))
    np.testing.assert_allclose(ours, attention_of_factors(factors), atol=1e-5)


def test_other_axes_are_no_difference_and_another_temperature_is(demo_page, tmp_path):
    same = changed(demo_page, tmp_path / "same.html", layer_3=rotated(demo_page, 3, 1))
    assert same.read_bytes() != demo_page.read_bytes()
    assert compare(demo_page, same, 0.5) is None
    other = changed(demo_page, tmp_path / "other.html", layer_3=rotated(demo_page, 3, 0.8))
    words = compare(demo_page, other, 0.5).words
    assert re.match(r"attention of layer 3 differs by \d+ % \(root mean square\)$", words)


def test_versions_in_the_record_are_no_difference_and_options_are(demo_page, tmp_path):
    record = json.loads(blocks(demo_page)["record"])
    record["versions"]["torch"] = "99"
    page = changed(demo_page, tmp_path / "page.html", record=json.dumps(record))
    assert compare(demo_page, page, 0.5) is None
    record["options"]["fit"] = "squash"
    page = changed(demo_page, tmp_path / "page.html", record=json.dumps(record))
    assert compare(demo_page, page, 0.5).words == "was made with fit aspect, not squash"


def test_everything_else_on_the_page_counts(demo_page, tmp_path):
    page = tmp_path / "page.html"
    known = facts(demo_page)
    changed(demo_page, page, facts=json.dumps(known | {"cmaps": {}}))
    assert compare(demo_page, page, 0.5).words == "has other cmaps"
    rollout = np.frombuffer(
        zlib.decompress(base64.b64decode(blocks(demo_page)["rollout"])), "<f4"
    ).copy()
    rollout[5] += 0.01
    block = base64.b64encode(zlib.compress(rollout.tobytes())).decode()
    changed(demo_page, page, rollout=block)
    assert compare(demo_page, page, 0.5).words == "rollout differs by up to 0.01"
    page.write_text(demo_page.read_text(encoding="utf-8").replace("</style>", " </style>"))
    assert compare(demo_page, page, 0.5).words == "has other scripts or styles"


@pytest.mark.parametrize("block", ["facts", "layer_0", "rollout"])
def test_a_damaged_page_is_a_difference(demo_page, tmp_path, block):
    page = changed(demo_page, tmp_path / "page.html", **{block: "x"})
    assert compare(demo_page, page, 0.5).words == "is not an explorer page"
    assert compare(page, demo_page, 0.5).words == "is not an explorer page"
