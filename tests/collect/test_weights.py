"""Sizes of a model's weights, from the headers of its files."""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agenttop.collect.weights as weights_module
from agenttop.collect.process import Command
from agenttop.collect.weights import WeightsOf, files, folder, ggml_types, gguf, safetensors
from agenttop.collect.weights.measured import UnknownWeightsError, measure
from agenttop.collect.weights.sizes import Weights, add_up
from agenttop.model.frames import EngineSample

PID = 4711
KINDS = {int: (4, "<I"), str: (8, ""), list: (9, "")}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def value(told: Any) -> bytes:
    if isinstance(told, str):
        return struct.pack("<I", 8) + text(told)
    if isinstance(told, list):
        return struct.pack("<IIQ", 9, 8, len(told)) + b"".join(map(text, told))
    return struct.pack("<II", 4, told)


def gguf_file(tensors: dict[str, int], **facts: Any) -> bytes:
    """A file whose tensors take so many bytes, each padded to 32."""
    facts = {"general.architecture": "tiny", "tokenizer.ggml.tokens": ["a", "b", "c"], **facts}
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(facts))
    head += b"".join(text(key.replace("__", ".")) + value(told) for key, told in facts.items())
    offset = 0
    for name, size in tensors.items():
        head += text(name) + struct.pack("<IQQIQ", 2, 32, size // 32, 24, offset)
        offset += -(-size // 32) * 32
    return head + b"\0" * (-len(head) % 32) + b"\0" * offset


def tensors_of(*each: tuple[int, tuple[int, ...]], before: Sequence[tuple[bytes, int]] = ()) -> bytes:
    """A file of (type, sizes) tensors of one byte an element; `before`: how a first is told, its bytes."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(each) + len(before), 0)
    offset = 0
    for told, size in before:
        head += text("other.w") + told
        offset += size
    for index, (kind, sizes) in enumerate(each):
        head += (
            text(f"blk.{index}.w") + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        )
        head += struct.pack("<IQ", kind, offset)
        offset += -(-math.prod(sizes) // 32) * 32
    return head + b"\0" * (-len(head) % 32) + b"\0" * offset


def read_gguf(content: bytes) -> dict[str, int]:
    return gguf.read(io.BytesIO(content), len(content))[0]


def safetensors_file(tensors: dict[str, int]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "F16", "shape": [size // 2], "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + b"\0" * offset


DENSE = {"token_embd.weight": 3200, "blk.0.attn_q.weight": 640, "blk.0.ffn_up.weight": 960}
SPARSE = {"blk.0.ffn_up_exps.weight": 6400, "blk.0.ffn_up_shexp.weight": 320, "blk.0.ffn_gate_inp.weight": 64}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one process, in whose folder models lie."""
    process = tmp_path / "proc" / str(PID)
    process.mkdir(parents=True)
    (tmp_path / "models").mkdir()
    (process / "cwd").symlink_to(tmp_path / "models")
    (process / "environ").write_bytes(b"HOME=/home/you\0API_KEY=secret\0")
    return tmp_path


def at(root: Path, *words: str) -> Any:
    return measure(PID, Command(["llama-server", *words]), root)


class TestGguf:
    def test_a_dense_model_with_an_output_of_its_own(self, root: Path) -> None:
        (root / "models/m.gguf").write_bytes(gguf_file({**DENSE, "output.weight": 3200}))
        found = at(root, "-m", "/models/m.gguf")
        assert (found.total, found.active, found.source) == (8000, 4800, "gguf")
        assert (found.experts, found.experts_used) == (None, None)

    def test_an_embedding_that_is_the_output_too_is_read_whole(self, root: Path) -> None:
        (root / "models/m.gguf").write_bytes(gguf_file(DENSE))
        found = at(root, "--model=/models/m.gguf")
        assert (found.total, found.active) == (4800, 4800)

    def test_of_a_mixture_of_experts_those_in_use_count(self, root: Path) -> None:
        facts = {"tiny.expert_count": 64, "tiny.expert_used_count": 8}
        (root / "models/m.gguf").write_bytes(gguf_file({**DENSE, **SPARSE}, **facts))
        found = at(root, "-m", "m.gguf")  # a path that counts from the server's own folder
        assert (found.experts, found.experts_used) == (64, 8)
        assert found.active == 4800 + 320 + 64 + 6400 // 8
        assert found.total == 4800 + 320 + 64 + 6400

    def test_experts_without_numbers_leave_the_active_part_open(self, root: Path) -> None:
        (root / "models/m.gguf").write_bytes(gguf_file({**DENSE, **SPARSE}))
        found = at(root, "-m", "m.gguf")
        assert (found.total, found.active) == (11584, None)

    def test_all_parts_of_a_split_model(self, root: Path) -> None:
        for number, name in enumerate(("blk.0.attn_q.weight", "blk.1.attn_q.weight"), 1):
            part = gguf_file({name: 640}, **{"tiny.expert_count": 0})
            (root / f"models/m-0000{number}-of-00002.gguf").write_bytes(part)
        assert at(root, "-m", "m-00001-of-00002.gguf").total == 1280
        (root / "models/m-00002-of-00002.gguf").unlink()
        with pytest.raises(UnknownWeightsError, match="cannot be read"):
            at(root, "-m", "m-00001-of-00002.gguf")

    def test_the_command_line_says_how_many_experts_are_used(self, root: Path) -> None:
        facts = {"tiny.expert_count": 64, "tiny.expert_used_count": 8}
        (root / "models/m.gguf").write_bytes(gguf_file(SPARSE, **facts))
        found = at(root, "-m", "m.gguf", "--override-kv", "tiny.expert_used_count=int:16")
        assert (found.experts_used, found.active) == (16, 320 + 64 + 6400 // 4)
        assert at(root, "-m", "m.gguf").experts_used == 8

    def test_a_file_that_its_name_does_not_tell(self, root: Path) -> None:
        """Ollama's go by what is in them."""
        (root / "models/sha256-0123").write_bytes(gguf_file(DENSE))
        assert at(root, "--model", "/models/sha256-0123").total == 4800
        (root / "models/notes").write_bytes(b"nothing of the kind")
        with pytest.raises(UnknownWeightsError, match="cannot be seen"):
            at(root, "--model", "/models/notes")

    def test_a_model_named_by_a_variable(self, root: Path) -> None:
        (root / "models/m.gguf").write_bytes(gguf_file(DENSE))
        (root / "proc" / str(PID) / "environ").write_bytes(b"LLAMA_ARG_MODEL=/models/m.gguf\0")
        assert at(root).total == 4800

    def test_a_file_that_has_changed_is_read_again(self, root: Path) -> None:
        path = root / "models/m.gguf"
        path.write_bytes(gguf_file(DENSE))
        assert at(root, "-m", "m.gguf").total == 4800
        path.write_bytes(gguf_file({**DENSE, "output.weight": 3200}))
        assert at(root, "-m", "m.gguf").total == 8000

    def test_a_file_that_stays_the_same_is_read_once(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "models/m.gguf").write_bytes(gguf_file(DENSE))
        first = at(root, "-m", "m.gguf")
        monkeypatch.setattr(gguf, "read", None)
        assert at(root, "-m", "m.gguf") is first

    def test_a_model_that_only_the_memory_map_shows(self, root: Path) -> None:
        (root / "models/m.gguf").write_bytes(gguf_file(DENSE))
        (root / "models/draft.gguf").write_bytes(gguf_file({"token_embd.weight": 32}))
        lines = [f"7f00-7f01 r--p 0 0:1 9 /models/{name}.gguf" for name in ("draft", "m", "m")]
        (root / "proc" / str(PID) / "maps").write_text("\n".join(lines))
        assert at(root, "-hf", "some/model").total == 4800

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", "ends in the middle"),
            (b"GGML" + b"\0" * 40, "no GGUF file"),
            (gguf_file(DENSE)[:200], "ends"),
            (struct.pack("<4sIQQ", b"GGUF", 9, 1, 1), "version 9"),
            (struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 1), "make no sense"),
            (struct.pack("<4sIQQQ", b"GGUF", 3, 1, 1, 2**62) + b"x" * 99, "ends in the middle"),
        ],
    )
    def test_a_damaged_file_is_one_sentence(self, root: Path, content: bytes, why: str) -> None:
        (root / "models/m.gguf").write_bytes(content)
        with pytest.raises(UnknownWeightsError, match=why):
            at(root, "-m", "m.gguf")

    @pytest.mark.parametrize(
        ("kind", "sizes", "length"),
        [
            (0, (8,), 32),
            (30, (8, 4), 64),
            (12, (512, 2), 4 * 144),
            (14, (256,), 210),
            (39, (64, 3), 2 * 3 * 17),
        ],
    )
    def test_bytes_follow_from_the_type(self, kind: int, sizes: tuple[int, ...], length: int) -> None:
        assert ggml_types.size_of(kind, sizes) == length

    def test_a_row_of_broken_blocks_has_no_size(self) -> None:
        assert ggml_types.size_of(12, (255, 2)) is None
        assert ggml_types.size_of(12, ()) is None
        assert ggml_types.size_of(4, (256,)) is None

    def test_padding_is_no_weight(self, root: Path) -> None:
        content = tensors_of((24, (33,)), (24, (40,)))
        assert read_gguf(content) == {"blk.0.w": 33, "blk.1.w": 40}

    def test_a_type_that_others_use_otherwise_counts_by_the_layout(self) -> None:
        """`Q2_0` of one build has blocks of 128, of another of 64: by its type it would be larger."""
        first = struct.pack("<IQIQ", 1, 1280, 42, 0)
        content = tensors_of((24, (32,)), before=[(first, 192)])
        assert read_gguf(content) == {"other.w": 192, "blk.0.w": 32}

    def test_a_file_that_was_not_loaded_down_to_its_end(self) -> None:
        content = tensors_of((24, (33,)), (24, (400,)))
        with pytest.raises(gguf.NotGgufError, match="ends before its last tensor"):
            read_gguf(content[:-100])

    @given(st.binary(max_size=400), st.integers(0, 400))
    def test_no_file_does_harm(self, junk: bytes, place: int) -> None:
        whole = gguf_file(DENSE)
        for content in (junk, b"GGUF" + junk, whole[:place] + junk + whole[place:]):
            try:
                tensors, _ = gguf.read(io.BytesIO(content), len(content))
            except gguf.NotGgufError:
                continue
            assert all(size >= 0 for size in tensors.values())


class TestSafetensors:
    def folder(self, root: Path, config: dict[str, Any], *parts: dict[str, int]) -> Path:
        folder = root / "models/m"
        folder.mkdir(parents=True)
        for number, tensors in enumerate(parts, 1):
            name = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
            (folder / name).write_bytes(safetensors_file(tensors))
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def test_parts_of_a_folder_and_experts_of_the_config(self, root: Path) -> None:
        config = {"text_config": {"num_experts": 128, "num_experts_per_tok": 8}}
        first = {"model.embed_tokens.weight": 2000, "model.layers.0.self_attn.q_proj.weight": 600}
        second = {"model.layers.0.mlp.experts.0.up_proj.weight": 6400, "lm_head.weight": 2000}
        second |= {"visual.blocks.0.attn.qkv.weight": 500, "model.layers.0.mlp.shared_expert.up.weight": 100}
        self.folder(root, config, first, second)
        found = at(root, "serve", "/models/m")
        assert (found.total, found.source, found.experts_used) == (11600, "safetensors", 8)
        assert found.active == 600 + 2000 + 100 + 400

    def test_weights_quantised_as_they_are_loaded_are_smaller_than_the_files(self, root: Path) -> None:
        self.folder(root, {}, {"a.weight": 100})
        with pytest.raises(UnknownWeightsError, match="quantised as they are loaded"):
            at(root, "serve", "/models/m", "--quantization", "fp8")

    def test_files_that_hold_quantised_weights_count_as_they_are(self, root: Path) -> None:
        self.folder(root, {"quantization_config": {"quant_method": "awq"}}, {"a.weight": 100})
        assert at(root, "serve", "/models/m", "--quantization", "awq").total == 100

    def test_numbers_of_32_bits_are_mostly_loaded_as_16(self, root: Path) -> None:
        folder = self.folder(root, {}, {"a.weight": 100})
        path = next(folder.glob("*.safetensors"))
        path.write_bytes(path.read_bytes().replace(b"F16", b"F32"))
        with pytest.raises(UnknownWeightsError, match="32 bits"):
            at(root, "serve", "/models/m")

    def test_tensors_that_overlap_are_a_mistake(self) -> None:
        whole = safetensors_file({"a.weight": 100, "b.weight": 100})
        content = whole.replace(b"[100, 200]", b"[ 99, 200]")
        with pytest.raises(safetensors.NotSafetensorsError, match="overlap"):
            safetensors.read(io.BytesIO(content), len(content))

    def test_a_part_that_is_not_there_leaves_it_open(self, root: Path) -> None:
        place = self.folder(root, {}, {"a.weight": 100}, {"b.weight": 100}, {"c.weight": 100})
        (place / "model-00002-of-00003.safetensors").unlink()
        with pytest.raises(UnknownWeightsError, match="2 of 3 parts"):
            at(root, "serve", "/models/m")

    def test_weights_that_lie_there_twice_count_once(self, root: Path) -> None:
        place = self.folder(root, {}, {"a.weight": 100}, {"b.weight": 100})
        (place / "consolidated.safetensors").write_bytes(safetensors_file({"x.weight": 200}))
        (place / "adapter_model.safetensors").write_bytes(safetensors_file({"y.weight": 8}))
        assert at(root, "serve", "/models/m").total == 200

    def test_an_adapter_is_no_model(self, root: Path) -> None:
        place = root / "models/adapter"
        place.mkdir()
        (place / "adapter_model.safetensors").write_bytes(safetensors_file({"y.weight": 8}))
        assert folder.weights_in(place) == []

    def test_the_revision_that_a_server_was_told(self, root: Path) -> None:
        model = root / "home/you/.cache/huggingface/hub/models--org--name"
        for commit, size in (("abc", 100), ("def", 200)):
            (model / "snapshots" / commit).mkdir(parents=True)
            content = safetensors_file({"a.weight": size})
            (model / "snapshots" / commit / "model.safetensors").write_bytes(content)
        (model / "refs").mkdir()
        (model / "refs/main").write_text("abc")
        (model / "refs/v2").write_text("def\n")
        assert at(root, "serve", "org/name").total == 100
        assert at(root, "serve", "org/name", "--revision", "v2").total == 200
        assert at(root, "serve", "org/name", "--revision", "def").total == 200
        for wrong in ("other", "../../../../../../models"):
            with pytest.raises(UnknownWeightsError, match="cannot be seen"):
                at(root, "serve", "org/name", "--revision", wrong)

    @pytest.mark.parametrize(
        ("variable", "place"),
        [
            ("HF_HUB_CACHE=/cache", "cache"),
            ("HF_HOME=/cache", "cache/hub"),
            ("XDG_CACHE_HOME=/c", "c/huggingface/hub"),
        ],
    )
    def test_a_cache_of_another_name(self, root: Path, variable: str, place: str) -> None:
        (root / "proc" / str(PID) / "environ").write_bytes(f"HOME=/home/you\0{variable}\0".encode())
        snapshot = root / place / "models--org--name/snapshots/abc"
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").write_bytes(safetensors_file({"a.weight": 100}))
        assert at(root, "serve", "org/name").total == 100

    def test_a_name_in_the_cache_of_the_servers_user(self, root: Path) -> None:
        snapshot = root / "home/you/.cache/huggingface/hub/models--org--name/snapshots/abc"
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").write_bytes(safetensors_file({"a.weight": 100}))
        assert at(root, "serve", "org/name").total == 100
        with pytest.raises(UnknownWeightsError, match="cannot be seen"):
            at(root, "serve", "../../etc")

    @given(st.binary(max_size=300))
    def test_no_file_does_harm(self, junk: bytes) -> None:
        for content in (junk, struct.pack("<Q", len(junk)) + junk):
            try:
                tensors = safetensors.read(io.BytesIO(content), len(content))
            except safetensors.NotSafetensorsError:
                continue
            assert all(size >= 0 for size in tensors.sizes.values())
        safetensors.read_config(junk)


def weigh(config: dict[str, Any], *tensors: str) -> tuple[int, int | None]:
    """(all, read for a token) of a model whose tensors take 1, 10, 100, ... bytes in this order."""
    sizes = {name: 10**place for place, name in enumerate(tensors)}
    found = safetensors.weigh(sizes, json.dumps(config).encode())
    return found.total, found.active


class TestWhatATokenReads:
    def test_an_output_that_is_stored_and_not_loaded(self) -> None:
        names = ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")
        assert weigh({"tie_word_embeddings": True}, *names) == (101, 101)
        assert weigh({"tie_word_embeddings": False}, *names) == (111, 110)
        assert weigh({}, *names) == (111, 110)

    def test_a_model_whose_output_goes_by_another_name(self) -> None:
        names = ("model.embed_tokens.weight", "model.unembed.weight")
        assert weigh({"tie_word_embeddings": False}, *names) == (11, 10)
        assert weigh({}, *names) == (11, 11)

    def test_two_words_on_the_output_are_none(self) -> None:
        config = {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}
        assert weigh(config, "model.embed_tokens.weight", "lm_head.weight") == (11, 10)

    @pytest.mark.parametrize(
        "name",
        ["per_layer_token_embd.weight", "model.language_model.embed_tokens_per_layer.weight", "wpe.weight"],
    )
    def test_a_table_of_rows_is_no_output(self, name: str) -> None:
        assert weigh({}, "token_embd.weight", name) == (11, 1)

    @pytest.mark.parametrize(
        "name", ["lm_head.qweight", "lm_head.weight_packed", "language_model.lm_head.weight"]
    )
    def test_a_quantised_output_is_one(self, name: str) -> None:
        assert weigh({}, "model.embed_tokens.weight", name) == (11, 10)

    def test_layers_that_predict_further_tokens(self) -> None:
        config = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
        names = ("model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.up_proj.weight", "mtp.fc.weight")
        assert weigh(config, *names) == (111, 1)
        assert weigh({"num_hidden_layers": 2}, *names) == (111, 11)

    def test_experts_by_their_names(self) -> None:
        config = {"num_experts": 10, "num_experts_per_tok": 1}
        names = ("a.weight", "model.layers.0.mlp.switch_mlp.up_proj.weight", "blk.0.ffn_up_exps.weight")
        assert weigh(config, *names) == (111, 12)

    def test_experts_that_are_told_and_not_found_leave_it_open(self) -> None:
        config = {"num_experts": 10, "num_experts_per_tok": 1}
        assert weigh(config, "model.layers.0.feed_forward.w.weight") == (1, None)

    def test_a_dense_model_of_a_family_with_experts(self) -> None:
        assert weigh({"num_experts": 1, "num_experts_per_tok": 1}, "model.layers.0.w.weight") == (1, 1)

    def test_gguf_layers_that_predict_further_tokens(self) -> None:
        facts: dict[str, int | str] = {
            "general.architecture": "x",
            "x.block_count": 3,
            "x.nextn_predict_layers": 1,
        }
        tensors = {"blk.1.attn_q.weight": 1, "blk.2.attn_q.weight": 10, "output_norm.weight": 100}
        assert gguf.weigh(tensors, facts).active == 101

    def test_the_server_may_be_told_to_use_more_experts(self) -> None:
        facts: dict[str, int | str] = {
            "general.architecture": "x",
            "x.expert_count": 8,
            "x.expert_used_count": 2,
        }
        assert gguf.weigh({"blk.1.ffn_up_exps.weight": 800}, facts).active == 200
        assert gguf.weigh({"blk.1.ffn_up_exps.weight": 800}, facts, 4).active == 400


def test_what_is_no_regular_file_is_not_opened(root: Path) -> None:
    """A pipe would block for ever, a device might do anything."""
    os.mkfifo(root / "models/m.gguf")
    with pytest.raises(UnknownWeightsError):
        at(root, "-m", "m.gguf")
    with pytest.raises(OSError, match="no regular file"):
        os.close(files.open_regular(root / "models/m.gguf"))


class TestContainers:
    def test_names_of_a_process_count_from_its_own_root(self, root: Path) -> None:
        own = root / "container/models"
        own.mkdir(parents=True)
        (root / "proc" / str(PID) / "root").symlink_to(root / "container")
        (own / "m.gguf").write_bytes(gguf_file(DENSE))
        (root / "models/m.gguf").write_bytes(gguf_file({**DENSE, "output.weight": 3200}))
        assert at(root, "-m", "/models/m.gguf").total == 4800

    @pytest.mark.parametrize(
        ("group", "seen"),
        [
            ("0::/system.slice/llama.service", True),
            ("0::/system.slice/docker-0123.scope", False),
            (None, False),
        ],
    )
    def test_where_they_may_not_be_looked_at(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, group: str | None, seen: bool
    ) -> None:
        """Another user's service has our folders; what is in a container has not."""
        (root / "models/m.gguf").write_bytes(gguf_file(DENSE))
        process = root / "proc" / str(PID)
        if group is not None:
            (process / "cgroup").write_text(group)
        as_it_is = os.stat

        def refused(path: Any, *args: Any, **options: Any) -> os.stat_result:
            if path == process / "root":
                raise PermissionError(13, "Permission denied")
            return as_it_is(path, *args, **options)

        monkeypatch.setattr(os, "stat", refused)
        if seen:
            assert at(root, "-m", "/models/m.gguf").total == 4800
        else:
            with pytest.raises(UnknownWeightsError, match="cannot be seen"):
                at(root, "-m", "/models/m.gguf")


@given(st.lists(st.text(max_size=30), max_size=4))
def test_no_command_line_does_harm(words: list[str]) -> None:
    with pytest.raises(UnknownWeightsError):
        measure(0, Command(["llama-server", "--model", *words]), Path("/nowhere/at/all"))


def test_the_environment_of_a_process_is_not_kept(root: Path) -> None:
    with pytest.raises(UnknownWeightsError) as error:
        at(root, "serve", "org/name")
    assert "secret" not in str(error.value)


def test_nothing_adds_up_to_nothing() -> None:
    assert add_up({}, None, None, "gguf").total == 0


URL = "http://127.0.0.1:9"


def sample(**changes: Any) -> EngineSample:
    told: dict[str, Any] = {
        "engine": URL,
        "url": URL,
        "name": "llama.cpp",
        "state": "ok",
        "pid": PID,
        "model": "m",
    }
    return EngineSample(t=1.0, **(told | changes))


async def test_what_the_user_names_counts_more_than_files() -> None:
    weights = WeightsOf(URL, 5_500, 5_100)
    found, missing = weights.add(sample(weights_bytes=1))
    assert (found.weights_bytes, found.weights_active_bytes, found.weights_from) == (5500, 5100, "entries")
    assert missing == []


async def test_why_they_are_not_known_is_told_once() -> None:
    weights = WeightsOf("http://192.0.2.7:8000")
    _, missing = weights.add(sample(pid=None))
    assert [frame.why for frame in missing] == ["it runs on another host: the files of its model are there"]
    assert "engines.toml" in (missing[0].fix or "")
    assert weights.add(sample(pid=None))[1] == []
    await weights.close()


async def test_what_an_engine_tells_itself_stays() -> None:
    weights = WeightsOf(URL)
    told = sample(weights_bytes=10, weights_active_bytes=5, weights_from="engine")
    assert weights.add(told) == (told, [])


async def test_sizes_go_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        weights_module, "measure_at", lambda url, pid: Weights(total=9, active=4, source="gguf")
    )
    weights = WeightsOf(URL)
    weights.add(sample())
    for _ in range(100):
        await asyncio.sleep(0.01)
        found, missing = weights.add(sample())
        if found.weights_bytes is not None:
            break
    assert (found.weights_bytes, found.weights_active_bytes, found.weights_from, missing) == (
        9,
        4,
        "gguf",
        [],
    )
    found, missing = weights.add(sample(pid=None))
    assert found.weights_bytes is None
    assert [frame.what for frame in missing] == [f"{URL}:weights_bytes"]
    await weights.close()


async def test_a_size_that_lacks_its_active_part_has_a_reason_of_its_own() -> None:
    remote = "http://192.0.2.7:8000"
    weights = WeightsOf(remote)
    _, missing = weights.add(sample(pid=None))
    assert [(frame.what, frame.why is None) for frame in missing] == [(f"{remote}:weights_bytes", False)]
    found, missing = weights.add(sample(pid=None, weights_bytes=10, weights_from="engine"))
    assert found.weights_bytes == 10
    told = [(frame.what, frame.why is None) for frame in missing]
    assert told == [(f"{remote}:weights_bytes", True), (f"{remote}:weights_active_bytes", False)]
    _, missing = weights.add(sample(weights_bytes=10, weights_active_bytes=5, weights_from="engine"))
    assert [(frame.what, frame.why) for frame in missing] == [(f"{remote}:weights_active_bytes", None)]


async def test_all_weights_named_without_the_active_ones() -> None:
    _, missing = WeightsOf(URL, 5_500, None).add(sample())
    assert [frame.what for frame in missing] == [f"{URL}:weights_active_bytes"]


@pytest.mark.engine
async def test_a_real_server_and_its_model(llama_server: Any) -> None:
    weights = WeightsOf(llama_server.url)
    asked = sample(engine=llama_server.url, url=llama_server.url, pid=llama_server.pid)
    for _ in range(200):
        found, missing = weights.add(asked)
        if found.weights_bytes is not None:
            break
        await asyncio.sleep(0.05)
    await weights.close()
    assert missing == []
    told = llama_server.json("/v1/models")["data"][0]["meta"]["size"]
    assert found.weights_bytes == pytest.approx(told, rel=0.01), "what the server itself says"
    assert found.weights_active_bytes is not None
    assert found.weights_bytes is not None
    assert 0 < found.weights_active_bytes <= found.weights_bytes
